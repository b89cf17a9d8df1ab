// A parameter server over gRPC, for tests/bench/peers/peers.py.
//
//   grpc_server cq|callback ADDRESS:PORT
//
// cq: one completion queue, one thread, messages in arenas that are used again. callback: the callback API
// with its own threads, and a
// lock around the table. Prints "ready grpc=VERSION protobuf=VERSION api=..."; ends on SIGTERM.
#include <google/protobuf/arena.h>
#include <grpcpp/grpcpp.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tensors.grpc.pb.h"
#include "tests/bench/peers/grpc_settings.h"
#include "tests/bench/peers/grpc_table.h"

namespace
{

using peers::Keys;
using peers::Nothing;
using peers::Rows;
using peers::Table;
using peers::Tensor;
using peers::Update;

void handle(Table & /*table*/, const Nothing & /*request*/, Nothing * /*reply*/)
{
}

struct Pull {
    static void run(Table &table, const Keys &keys, Tensor *out)
    {
        table.pull(keys, out);
    }
};
struct Sum {
    static void run(Table &table, const Keys &keys, Tensor *out)
    {
        table.sum(keys, out);
    }
};
struct Push {
    static void run(Table &table, const Update &update, Nothing * /*out*/)
    {
        table.push(update);
    }
};
struct Set {
    static void run(Table &table, const Update &update, Nothing * /*out*/)
    {
        table.set(update);
    }
};

// ---- completion queue ----

class Call
{
  public:
    Call() = default;
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;
    virtual ~Call() = default;
    virtual void go_on(bool ok) = 0;
};

// A place for one call of a method after the other.
template <class Request, class Reply> class Place : public Call
{
  public:
    using Ask = void (Rows::AsyncService::*)(grpc::ServerContext *, Request *,
                                             grpc::ServerAsyncResponseWriter<Reply> *,
                                             grpc::CompletionQueue *, grpc::ServerCompletionQueue *, void *);
    using Run = void (*)(Table &, const Request &, Reply *);

    Place(Rows::AsyncService *service, grpc::ServerCompletionQueue *queue, Table *table, Ask ask, Run run)
        : service_(service), queue_(queue), table_(table), ask_(ask), run_(run)
    {
        begin();
    }

    void go_on(bool ok) override
    {
        if (answered_ || !ok) {
            if (ok)
                begin();
            return;
        }
        run_(*table_, *request_, reply_);
        answered_ = true;
        writer_->Finish(*reply_, grpc::Status::OK, this);
    }

  private:
    void begin()
    {
        writer_.reset();
        context_.emplace();
        arena_.Reset();
        request_ = google::protobuf::Arena::CreateMessage<Request>(&arena_);
        reply_ = google::protobuf::Arena::CreateMessage<Reply>(&arena_);
        writer_.emplace(&*context_);
        answered_ = false;
        (service_->*ask_)(&*context_, request_, &*writer_, queue_, queue_, this);
    }

    Rows::AsyncService *service_;
    grpc::ServerCompletionQueue *queue_;
    Table *table_;
    Ask ask_;
    Run run_;
    google::protobuf::Arena arena_;
    std::optional<grpc::ServerContext> context_;
    std::optional<grpc::ServerAsyncResponseWriter<Reply>> writer_;
    Request *request_ = nullptr;
    Reply *reply_ = nullptr;
    bool answered_ = false;
};

void wait_for_signal(grpc::Server *server)
{
    sigset_t signals;
    int signal = 0;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigwait(&signals, &signal);
    server->Shutdown(std::chrono::system_clock::now());
}

void say_ready(const char *api)
{
    std::printf("ready grpc=%s protobuf=%s api=%s\n", grpc::Version().c_str(),
                google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION).c_str(), api);
    (void)std::fflush(stdout);
}

int refuse(const std::string &address)
{
    std::fprintf(stderr, "grpc_server: cannot listen on %s\n", address.c_str());
    return 1;
}

int serve_queue(Table *table, const std::string &address)
{
    Rows::AsyncService service;
    grpc::ServerBuilder builder;
    peers::tune(&builder, address);
    builder.RegisterService(&service);
    auto queue = builder.AddCompletionQueue();
    auto server = builder.BuildAndStart();
    if (server == nullptr)
        return refuse(address);

    std::vector<std::unique_ptr<Call>> places;
    for (uint32_t i = 0; i < 2 * WORK_OUTSTANDING; i++)
        places.push_back(std::make_unique<Place<Nothing, Nothing>>(
            &service, queue.get(), table, &Rows::AsyncService::RequestEmpty, handle));
    for (int i = 0; i < 4; i++) {
        places.push_back(std::make_unique<Place<Keys, Tensor>>(&service, queue.get(), table,
                                                               &Rows::AsyncService::RequestPull, Pull::run));
        places.push_back(std::make_unique<Place<Keys, Tensor>>(&service, queue.get(), table,
                                                               &Rows::AsyncService::RequestSum, Sum::run));
        places.push_back(std::make_unique<Place<Update, Nothing>>(
            &service, queue.get(), table, &Rows::AsyncService::RequestPush, Push::run));
        places.push_back(std::make_unique<Place<Update, Nothing>>(&service, queue.get(), table,
                                                                  &Rows::AsyncService::RequestSet, Set::run));
    }
    say_ready("cq");
    std::thread ender([&] {
        wait_for_signal(server.get());
        queue->Shutdown();
    });
    void *tag = nullptr;
    for (bool ok = false; queue->Next(&tag, &ok);)
        static_cast<Call *>(tag)->go_on(ok);
    ender.join();
    return 0;
}

// ---- callback ----

class Service final : public Rows::CallbackService
{
  public:
    explicit Service(Table *table) : table_(table)
    {
    }

    grpc::ServerUnaryReactor *Empty(grpc::CallbackServerContext *context, const Nothing * /*request*/,
                                    Nothing * /*reply*/) override
    {
        return finish(context);
    }
    grpc::ServerUnaryReactor *Pull(grpc::CallbackServerContext *context, const Keys *keys,
                                   Tensor *out) override
    {
        std::lock_guard<std::mutex> lock(mutex_);
        table_->pull(*keys, out);
        return finish(context);
    }
    grpc::ServerUnaryReactor *Sum(grpc::CallbackServerContext *context, const Keys *keys,
                                  Tensor *out) override
    {
        std::lock_guard<std::mutex> lock(mutex_);
        table_->sum(*keys, out);
        return finish(context);
    }
    grpc::ServerUnaryReactor *Push(grpc::CallbackServerContext *context, const Update *update,
                                   Nothing * /*reply*/) override
    {
        std::lock_guard<std::mutex> lock(mutex_);
        table_->push(*update);
        return finish(context);
    }
    grpc::ServerUnaryReactor *Set(grpc::CallbackServerContext *context, const Update *update,
                                  Nothing * /*reply*/) override
    {
        std::lock_guard<std::mutex> lock(mutex_);
        table_->set(*update);
        return finish(context);
    }

  private:
    static grpc::ServerUnaryReactor *finish(grpc::CallbackServerContext *context)
    {
        auto *reactor = context->DefaultReactor();
        reactor->Finish(grpc::Status::OK);
        return reactor;
    }

    std::mutex mutex_;
    Table *table_;
};

int serve_callbacks(Table *table, const std::string &address)
{
    Service service(table);
    grpc::ServerBuilder builder;
    peers::tune(&builder, address);
    builder.RegisterService(&service);
    auto server = builder.BuildAndStart();
    if (server == nullptr)
        return refuse(address);
    say_ready("callback");
    wait_for_signal(server.get());
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    const bool queue = argc == 3 && std::strcmp(argv[1], "cq") == 0;
    if (argc != 3 || (!queue && std::strcmp(argv[1], "callback") != 0)) {
        std::fprintf(stderr, "usage: grpc_server cq|callback ADDRESS:PORT\n");
        return 2;
    }
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr); // for all threads to come: wait_for_signal() takes them
    Table table;
    return queue ? serve_queue(&table, argv[2]) : serve_callbacks(&table, argv[2]);
}
