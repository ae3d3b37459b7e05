// SPDX-License-Identifier: MIT
/// The two sides of gpu_interchange.cpp, which includes this behind its kernels: one in this process, and one in a process of its own.
#pragma once

#include <algorithm>
#include <future>
#include <memory>
#include <sstream>

#include "host.hpp"
#include "processes.hpp"

namespace {

constexpr const char* kFunctions = "example_nic_send,example_proxy_send,example_proxy_receive,example_verify";
constexpr uint64_t kToldAt = 1024;  // in the words

struct Wish {
    std::string device;
    std::string gpus[2];
    uint64_t bytes, value, rounds;
    double limit;
};

/// One of the two sides, which answers commands with text.
class Party {
public:
    virtual ~Party() = default;
    virtual void begin(const std::string& command) = 0;
    virtual std::string end() = 0;
    std::string ask(const std::string& command) {
        begin(command);
        return end();
    }
};

/// A side in this process. A command runs on a thread, since kernels of both sides run at once.
class Here : public Party {
public:
    Here(const Wish& wish, int rank) : wish_(wish), rank_(rank), side_(wish.device, wish.gpus[rank], "gpu_interchange", kFunctions, wish.limit) {}

    void begin(const std::string& command) override {
        answer_ = std::async(std::launch::async, [this, command] { return act(command); });
    }
    std::string end() override { return answer_.get(); }

private:
    std::string act(const std::string& command) {
        const std::string what = command.substr(0, command.find(' ')), rest = command.substr(std::min(what.size() + 1, command.size()));
        if (what == "gpu") {
            return side_.gpu();
        } else if (what == "discover") {
            return side_.discover();
        } else if (what == "device") {
            return side_.device();
        } else if (what == "endpoint") {
            const example::End end = side_.endpoint();
            return std::to_string(end.number) + " " + end.address;
        } else if (what == "connect") {
            side_.connect(rest);
        } else if (what == "register") {
            buffer_ = side_.buffer(wish_.bytes);
            return buffer_.shown;
        } else if (what == "buffer") {
            std::ostringstream words;
            words << wish_.bytes << " bytes at 0x" << std::hex << buffer_.addr << ", " << buffer_.keys;
            return words.str();
        } else if (what == "meet") {
            side_.meet(rest);
        } else if (what == "run") {
            return run();
        } else if (what == "verify") {
            return std::to_string(verify());
        } else {
            side_.close();
        }
        return "";
    }

    Exchange exchange() const {
        return {reinterpret_cast<const void*>(side_.view.queue), side_.mine(), side_.peer(), wish_.bytes, wish_.rounds,
                side_.view.limit, side_.words<uint64_t>(), side_.words<Told>(kToldAt), wish_.value};
    }

    /// What the kernel of this rank told, "" if it has none.
    std::string run() {
        const char* name = nullptr;
        void (*kernel)(Exchange) = nullptr;
        if (side_.view.proxy != 0) {
            name = rank_ == 0 ? "example_proxy_send" : "example_proxy_receive";
            kernel = rank_ == 0 ? example_proxy_send : example_proxy_receive;
        } else if (rank_ == 0) {
            name = "example_nic_send", kernel = example_nic_send;
        } else {
            return "";
        }
        const Told& told = *side_.words<Told>(kToldAt);
        side_.launch(name, kernel, exchange());
        if (told.status != 0) {
            std::ostringstream why;
            why << name << " after " << told.rounds << " of " << wish_.rounds << " rounds: status 0x" << std::hex << told.status;
            throw std::runtime_error(why.str());
        }
        char line[128];
        snprintf(line, sizeof(line), "%s, %llu rounds, %.1f µs each", name, (unsigned long long)told.rounds,
                 double(told.nanoseconds) / double(told.rounds) / 1000);
        return line;
    }

    /// Bytes that are wrong: of each round with a proxy, whose receiver has looked at all, and those of the last.
    uint64_t verify() {
        side_.launch("example_verify", example_verify, exchange());
        return side_.words<Told>(kToldAt)->wrong;
    }

    const Wish wish_;
    const int rank_;
    example::Side side_;
    example::Buffer buffer_{};
    std::future<std::string> answer_;
};

/// A side in a process of its own.
class There : public Party {
public:
    There(std::vector<std::string> arguments, int patience) : second_(std::move(arguments), patience) {}
    void begin(const std::string& command) override { second_.line().tell(command); }
    std::string end() override {
        const std::string answer = second_.line().hear();
        if (answer[0] != '+') {
            throw std::runtime_error("receiver: " + answer.substr(1));
        }
        return answer.substr(1);
    }

private:
    example::Second second_;
};

/// The process of a There: it answers until it has closed its side.
int serve(const Wish& wish, int patience) {
    const example::Line line(example::kLineFd, patience);
    std::unique_ptr<Here> side;
    for (std::string command; command != "close";) {
        command = line.hear();
        try {
            if (side == nullptr) {
                side = std::make_unique<Here>(wish, 1);
            }
            line.tell("+" + side->ask(command));
        } catch (const std::exception& failure) {
            line.tell(std::string("-") + failure.what());
        }
    }
    return 0;
}

}  // namespace
