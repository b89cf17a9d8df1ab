// A table of rows behind gRPC: Abseil's hash map, Adagrad step by step. One thread at a time.
#ifndef PEERS_GRPC_TABLE_H
#define PEERS_GRPC_TABLE_H

#include <absl/container/flat_hash_map.h>

#include <cstdint>

#include "tensors.pb.h"
#include "tests/bench/peers/workload.h"

namespace peers
{

class Table
{
  public:
    Table();
    void pull(const Keys &keys, Tensor *out) const;
    void sum(const Keys &bags, Tensor *out) const;
    void push(const Update &update);
    void set(const Update &update);

  private:
    struct Row {
        float values[WORK_DIM];
        float squares[WORK_DIM];
    };
    absl::flat_hash_map<uint64_t, Row> rows_;
};

} // namespace peers

#endif
