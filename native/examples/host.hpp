// SPDX-License-Identifier: MIT
/// The host's side of the examples: a Side with errors as exceptions, options of a command line, and the launch of a kernel on a GPU or on
/// threads of the CPU.
#pragma once

#include "host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <map>
#include <stdexcept>
#include <string>

#include "mori/device/vendor.hpp"
#include "mori/nic/queue.hpp"

namespace example {

constexpr uint32_t kCpuThreads = 4;  ///< a block on the CPU: one warp, and each lane is a thread of the system that polls
constexpr uint32_t kGpuThreads = 256;

/// Calls a function of host.h.
template <class Function, class... Args>
void call(Function function, Args... args) {
    char* error = nullptr;
    if (function(args..., &error) != 0) {
        const std::string why = error != nullptr ? error : "it says nothing";
        free(error);
        throw std::runtime_error(why);
    }
}

inline char* text(const std::string& words) { return const_cast<char*>(words.c_str()); }

/// A text that host.h has given.
inline std::string taken(char* words) {
    std::string copy = words;
    free(words);
    return copy;
}

/// The folder that this program is in, where its kernels for GPUs are, too.
inline std::string programFolder() {
    char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
    const std::string all(path, n > 0 ? size_t(n) : 0);
    return all.substr(0, all.rfind('/'));
}

struct End {
    uint32_t number;
    std::string address;
};

struct Buffer {
    uint64_t addr;
    std::string keys, shown;
};

struct Message {
    uint32_t bytes, immediate;
};

/// One of the two sides.
class Side {
public:
    /// `functions` are the kernels that are launched, of the file `module`.
    Side(const std::string& device, const std::string& gpu, const std::string& module, const std::string& functions,
         double limit = 0, uint32_t receives = 0) {
        const std::string folder = programFolder();
        mori_side_options options{text(device), text(gpu), limit, receives, text(folder), text(module), text(functions)};
        call(mori_side_open, &options, &id_);
    }
    ~Side() {
        char* error = nullptr;
        mori_side_close(id_, &error);  // a side that was closed is not there
        free(error);
    }
    Side(const Side&) = delete;
    Side& operator=(const Side&) = delete;

    std::string gpu() const { return told(mori_side_gpu); }
    std::string discover() const { return told(mori_side_discover); }
    std::string device() const { return told(mori_side_device); }
    End endpoint() const {
        uint32_t number = 0;
        char* address = nullptr;
        call(mori_side_endpoint, id_, &number, &address);
        return {number, taken(address)};
    }
    void connect(const std::string& address) const { call(mori_side_connect, id_, text(address)); }
    Buffer buffer(uint64_t bytes) const {
        uint64_t addr = 0;
        char* keys = nullptr;
        char* shown = nullptr;
        call(mori_side_register, id_, bytes, &addr, &keys, &shown);
        return {addr, taken(keys), taken(shown)};
    }
    void meet(const std::string& shown) {
        call(mori_side_meet, id_, text(shown));
        call(mori_side_view, id_, &view);
    }
    void fill(uint64_t offset, const void* from, uint64_t bytes) const {
        call(mori_side_fill, id_, offset, const_cast<void*>(from), bytes);
    }
    void fetch(uint64_t offset, void* to, uint64_t bytes) const { call(mori_side_fetch, id_, offset, to, bytes); }
    void receive(uint64_t offset, uint64_t bytes) const { call(mori_side_receive, id_, offset, bytes); }
    Message received() const {
        Message message{};
        call(mori_side_received, id_, &message.bytes, &message.immediate);
        return message;
    }
    void close() const { call(mori_side_close, id_); }

    /// Runs a kernel as one block, and returns when it has ended.
    template <class Args>
    void launch(const char* name, void (*kernel)(Args), Args args) const {
        if (view.cpu != 0) {
            mori::device::cpu::launch(1, kCpuThreads, [&] { kernel(args); });
        } else {
            call(mori_side_launch, id_, const_cast<char*>(name), static_cast<void*>(&args), uint64_t(sizeof(args)), kGpuThreads);
        }
    }

    /// The NIC's queue, for a kernel that drives it.
    mori::nic::Queue* queue() const {
        if (view.proxy != 0) {
            throw std::runtime_error("this kernel drives a NIC by itself: want --device emu0 or an RDMA device's name");
        }
        return reinterpret_cast<mori::nic::Queue*>(view.queue);
    }
    mori::nic::Memory mine() const { return memory(view.mine); }
    mori::nic::Memory peer() const { return memory(view.peer); }

    /// Zeroed host memory that kernels see, too.
    template <class T>
    T* words(uint64_t offset = 0) const {
        return reinterpret_cast<T*>(view.words + offset);
    }

    mori_view view{};

private:
    static mori::nic::Memory memory(const mori_memory& m) { return {m.addr, m.bytes, m.lkey, m.rkey}; }
    template <class Function>
    std::string told(Function function) const {
        char* words = nullptr;
        call(function, id_, &words);
        return taken(words);
    }

    uint64_t id_ = 0;
};

/// Takes the steps that two sides of one process take before kernels run. Each has a buffer of so many bytes.
inline void join(Side& a, Side& b, uint64_t bytes) {
    End ends[2];
    Buffer buffers[2];
    Side* const sides[2] = {&a, &b};
    for (int i = 0; i < 2; i++) {
        sides[i]->discover();
        sides[i]->device();
        ends[i] = sides[i]->endpoint();
    }
    for (int i = 0; i < 2; i++) {
        sides[i]->connect(ends[1 - i].address);
    }
    for (int i = 0; i < 2; i++) {
        buffers[i] = sides[i]->buffer(bytes);
    }
    for (int i = 0; i < 2; i++) {
        sides[i]->meet(buffers[1 - i].shown);
    }
}

/// Options of a command line, "--name value" each, as text. Those that are not known end the program with status 2.
class Options {
public:
    Options(int argc, char** argv, std::map<std::string, std::string> known) : values_(std::move(known)) {
        for (int i = 1; i < argc; i += 2) {
            const std::string name = strncmp(argv[i], "--", 2) == 0 ? argv[i] + 2 : "";
            if (i + 1 == argc || values_.count(name) == 0) {
                usage(argv[0]);
            }
            values_[name] = argv[i + 1];
        }
    }
    const std::string& operator[](const std::string& name) const { return values_.at(name); }

    /// A number from least to most.
    uint64_t number(const std::string& name, uint64_t least, uint64_t most) const {
        const std::string& digits = values_.at(name);
        char* end = nullptr;
        const uint64_t n = strtoull(digits.c_str(), &end, 10);
        if (digits.empty() || digits[0] == '-' || *end != 0 || n < least || n > most) {
            fprintf(stderr, "--%s must be %llu to %llu, got %s\n", name.c_str(), (unsigned long long)least,
                    (unsigned long long)most, digits.c_str());
            exit(2);
        }
        return n;
    }

    /// The GPU of a side: "cuda:0,cuda:1" names one for each, "cuda:0" one for both.
    std::string gpu(int side) const {
        const std::string& both = values_.at("gpu");
        const size_t comma = both.find(',');
        return comma == std::string::npos ? both : side == 0 ? both.substr(0, comma) : both.substr(comma + 1);
    }

private:
    [[noreturn]] void usage(const char* program) const {
        fprintf(stderr, "usage: %s", program);
        for (const auto& [name, value] : values_) {
            fprintf(stderr, " [--%s %s]", name.c_str(), value.c_str());
        }
        fprintf(stderr, "\n");
        exit(2);
    }

    std::map<std::string, std::string> values_;
};

/// Runs a program's own main, whose exceptions are words and status 1.
template <class Main>
int run(const char* program, Main main) {
    try {
        return main();
    } catch (const std::exception& failure) {
        fprintf(stderr, "%s: %s\n", program, failure.what());
        return 1;
    }
}

}  // namespace example
