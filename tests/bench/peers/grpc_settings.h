// What both ends of a channel are set to: for large messages on a fast link, as gRPC's channel arguments
// describe them.
#ifndef PEERS_GRPC_SETTINGS_H
#define PEERS_GRPC_SETTINGS_H

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

namespace peers
{

constexpr int MESSAGE_BYTES_MAX = 64 << 20;
constexpr int WINDOW_BYTES = 8 << 20;       // of a stream: a whole answer
constexpr int FRAME_BYTES = (16 << 20) - 1; // the most that HTTP/2 allows
constexpr const char *TARGET = "latency";   // of gRPC's own settings

inline void tune(grpc::ServerBuilder *builder, const std::string &address)
{
    builder->AddListeningPort(address, grpc::InsecureServerCredentials());
    builder->SetDefaultCompressionAlgorithm(GRPC_COMPRESS_NONE);
    builder->SetMaxReceiveMessageSize(MESSAGE_BYTES_MAX);
    builder->AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, WINDOW_BYTES);
    builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, FRAME_BYTES);
    builder->AddChannelArgument(GRPC_ARG_OPTIMIZATION_TARGET, TARGET);
}

inline std::shared_ptr<grpc::Channel> connect(const std::string &address)
{
    grpc::ChannelArguments arguments;
    arguments.SetCompressionAlgorithm(GRPC_COMPRESS_NONE);
    arguments.SetMaxReceiveMessageSize(MESSAGE_BYTES_MAX);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, WINDOW_BYTES);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, FRAME_BYTES);
    arguments.SetString(GRPC_ARG_OPTIMIZATION_TARGET, TARGET);
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

} // namespace peers

#endif
