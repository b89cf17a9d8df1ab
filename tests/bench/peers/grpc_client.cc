// gRPC, for tests/bench/peers/peers.py. --api sync (default): one call at a time through the blocking stub;
// cq: through a completion
// queue. 64 in flight always go through a completion queue.
#include <google/protobuf/arena.h>
#include <grpcpp/grpcpp.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "tensors.grpc.pb.h"
#include "tests/bench/common/bench_print.h"
#include "tests/bench/peers/grpc_settings.h"
#include "tests/bench/peers/peer_bench.h"

namespace
{

using peers::Keys;
using peers::Nothing;
using peers::Rows;
using peers::Tensor;
using peers::Update;

constexpr auto CONNECT_SECONDS = std::chrono::seconds(20);

void check(const grpc::Status &status, const char *what)
{
    if (!status.ok())
        peer_give_up("grpc_client", "%s: %s", what, status.error_message().c_str());
}

class Client
{
  public:
    Client(const std::string &address, bool queued) : queued_(queued)
    {
        auto channel = peers::connect(address);
        if (!channel->WaitForConnected(std::chrono::system_clock::now() + CONNECT_SECONDS))
            peer_give_up("grpc_client", "%s: no connection", address.c_str());
        stub_ = Rows::NewStub(channel);
    }

    // Messages of a call; they stay until the next.
    template <class Message> Message *fresh()
    {
        return google::protobuf::Arena::CreateMessage<Message>(&arena_);
    }
    void drop_messages()
    {
        arena_.Reset();
    }

    template <class Request, class Reply>
    void call(grpc::Status (Rows::Stub::*blocking)(grpc::ClientContext *, const Request &, Reply *),
              std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>> (Rows::Stub::*queued)(
                  grpc::ClientContext *, const Request &, grpc::CompletionQueue *),
              const Request &request, Reply *reply, const char *what)
    {
        grpc::ClientContext context;
        grpc::Status status;
        if (!queued_) {
            status = (*stub_.*blocking)(&context, request, reply);
        } else {
            void *tag = nullptr;
            bool ok = false;
            auto reader = (*stub_.*queued)(&context, request, &queue_);
            reader->Finish(reply, &status, this);
            if (!queue_.Next(&tag, &ok))
                peer_give_up("grpc_client", "%s: the queue ended", what);
        }
        check(status, what);
    }

    uint64_t empty_many(double until_us)
    {
        std::array<Slot, WORK_OUTSTANDING> slots;
        uint64_t calls = 0;
        for (Slot &slot : slots)
            begin(&slot);
        while (bench_now_us() < until_us) {
            for (uint32_t i = 0; i < WORK_OUTSTANDING; i++) {
                begin(end_one());
                calls++;
            }
        }
        for (uint32_t i = 0; i < WORK_OUTSTANDING; i++)
            (void)end_one();
        return calls;
    }

  private:
    struct Slot {
        std::optional<grpc::ClientContext> context;
        std::unique_ptr<grpc::ClientAsyncResponseReader<Nothing>> reader;
        Nothing reply;
        grpc::Status status;
    };

    void begin(Slot *slot)
    {
        slot->reader.reset();
        slot->context.emplace();
        slot->reader = stub_->AsyncEmpty(&*slot->context, Nothing(), &queue_);
        slot->reader->Finish(&slot->reply, &slot->status, slot);
    }

    Slot *end_one()
    {
        void *tag = nullptr;
        bool ok = false;
        if (!queue_.Next(&tag, &ok))
            peer_give_up("grpc_client", "Empty: the queue ended");
        auto *slot = static_cast<Slot *>(tag);
        check(slot->status, "Empty");
        return slot;
    }

    bool queued_;
    google::protobuf::Arena arena_;
    grpc::CompletionQueue queue_;
    std::unique_ptr<Rows::Stub> stub_;
};

void empty(void *state)
{
    auto *c = static_cast<Client *>(state);
    Nothing request;
    Nothing reply;
    c->call(&Rows::Stub::Empty, &Rows::Stub::AsyncEmpty, request, &reply, "Empty");
}

uint64_t empty_many(void *state, double until_us)
{
    return static_cast<Client *>(state)->empty_many(until_us);
}

const float *values_of(const Tensor *tensor, uint32_t rows, const char *what)
{
    if (tensor->values_size() != static_cast<int>(rows * WORK_DIM))
        peer_give_up("grpc_client", "%s: %d floats", what, tensor->values_size());
    return tensor->values().data();
}

const float *pull(void *state, const struct workload *w)
{
    auto *c = static_cast<Client *>(state);
    c->drop_messages();
    auto *keys = c->fresh<Keys>();
    auto *rows = c->fresh<Tensor>();
    keys->mutable_keys()->Add(w->keys, w->keys + WORK_ROWS);
    c->call(&Rows::Stub::Pull, &Rows::Stub::AsyncPull, *keys, rows, "Pull");
    return values_of(rows, WORK_ROWS, "Pull");
}

const float *lookup(void *state, const struct workload *w)
{
    auto *c = static_cast<Client *>(state);
    c->drop_messages();
    auto *bags = c->fresh<Keys>();
    auto *sums = c->fresh<Tensor>();
    bags->mutable_keys()->Add(w->keys, w->keys + WORK_ROWS);
    bags->mutable_offsets()->Add(w->offsets, w->offsets + WORK_BAGS + 1);
    c->call(&Rows::Stub::Sum, &Rows::Stub::AsyncSum, *bags, sums, "Sum");
    return values_of(sums, WORK_BAGS, "Sum");
}

Update *update_of(Client *c, const struct workload *w, const float *rows)
{
    c->drop_messages();
    auto *update = c->fresh<Update>();
    update->mutable_keys()->mutable_keys()->Add(w->keys, w->keys + WORK_ROWS);
    update->mutable_rows()->add_dims(WORK_ROWS);
    update->mutable_rows()->add_dims(WORK_DIM);
    update->mutable_rows()->mutable_values()->Add(rows, rows + static_cast<size_t>(WORK_ROWS) * WORK_DIM);
    return update;
}

void push(void *state, const struct workload *w)
{
    auto *c = static_cast<Client *>(state);
    Nothing reply;
    c->call(&Rows::Stub::Push, &Rows::Stub::AsyncPush, *update_of(c, w, w->gradients), &reply, "Push");
}

void set(void *state, const struct workload *w)
{
    auto *c = static_cast<Client *>(state);
    Nothing reply;
    c->call(&Rows::Stub::Set, &Rows::Stub::AsyncSet, *update_of(c, w, w->rows), &reply, "Set");
}

} // namespace

int main(int argc, char **argv)
{
    const struct peer_options options = peer_options_read("grpc_client", argc, argv);
    const std::string api = options.api != nullptr ? options.api : "sync";
    if (api != "sync" && api != "cq")
        peer_give_up("grpc_client", "--api is sync or cq, not %s", api.c_str());
    Client client(std::string(options.address) + ":" + std::to_string(options.port), api == "cq");
    struct peer peer = {};
    peer.program = "grpc_client";
    peer.state = &client;
    peer.update = WORK_ADAGRAD_EACH;
    peer.empty = empty;
    peer.empty_many = empty_many;
    peer.pull = pull;
    peer.lookup = lookup;
    peer.push = push;
    peer.set = set;
    peer_bench(&peer, &options);
    return 0;
}
