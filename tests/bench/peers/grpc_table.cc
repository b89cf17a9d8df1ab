#include "tests/bench/peers/grpc_table.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace peers
{

Table::Table()
{
    rows_.reserve(WORK_KEYS);
    for (uint64_t key = 0; key < WORK_KEYS; key++) {
        Row &row = rows_[key];
        work_row(key, row.values);
        std::fill_n(row.squares, WORK_DIM, 0.0F);
    }
}

static float *room(Tensor *out, int rows)
{
    out->add_dims(static_cast<uint32_t>(rows));
    out->add_dims(WORK_DIM);
    out->mutable_values()->Resize(rows * static_cast<int>(WORK_DIM), 0.0F);
    return out->mutable_values()->mutable_data();
}

void Table::pull(const Keys &keys, Tensor *out) const
{
    float *to = room(out, keys.keys_size());
    for (uint64_t key : keys.keys()) {
        auto found = rows_.find(key);
        if (found != rows_.end())
            std::memcpy(to, found->second.values, sizeof(found->second.values));
        to += WORK_DIM;
    }
}

void Table::sum(const Keys &bags, Tensor *out) const
{
    float *to = room(out, std::max(bags.offsets_size() - 1, 0));
    for (int bag = 0; bag + 1 < bags.offsets_size(); bag++, to += WORK_DIM) {
        auto end = std::min(bags.offsets(bag + 1), static_cast<uint32_t>(bags.keys_size()));
        for (uint32_t i = bags.offsets(bag); i < end; i++) {
            auto found = rows_.find(bags.keys(static_cast<int>(i)));
            for (uint32_t d = 0; found != rows_.end() && d < WORK_DIM; d++)
                to[d] += found->second.values[d];
        }
    }
}

static bool fits(const Update &update)
{
    return update.rows().values_size() == update.keys().keys_size() * static_cast<int>(WORK_DIM);
}

void Table::push(const Update &update)
{
    const float *gradient = update.rows().values().data();
    if (!fits(update))
        return;
    for (uint64_t key : update.keys().keys()) {
        Row &row = rows_[key];
        for (uint32_t d = 0; d < WORK_DIM; d++) {
            row.squares[d] += gradient[d] * gradient[d];
            row.values[d] -= WORK_RATE * gradient[d] / (std::sqrt(row.squares[d]) + WORK_EPSILON);
        }
        gradient += WORK_DIM;
    }
}

void Table::set(const Update &update)
{
    const float *from = update.rows().values().data();
    if (!fits(update))
        return;
    for (uint64_t key : update.keys().keys()) {
        std::memcpy(rows_[key].values, from, WORK_DIM * sizeof(float));
        from += WORK_DIM;
    }
}

} // namespace peers
