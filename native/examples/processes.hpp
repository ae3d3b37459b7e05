// SPDX-License-Identifier: MIT
/// A second process of the same program, and lines between the two. It is started anew and not forked: a process that has the library in it
/// has threads that a fork would leave behind.
#pragma once

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace example {

/// One end of a connection over which texts go, each as its length and its bytes.
class Line {
public:
    explicit Line(int fd, int patienceSeconds) : fd_(fd), patience_(patienceSeconds * 1000) { signal(SIGPIPE, SIG_IGN); }
    ~Line() { close(fd_); }
    Line(const Line&) = delete;
    Line& operator=(const Line&) = delete;

    void tell(const std::string& words) const {
        const uint32_t n = uint32_t(words.size());
        const std::string all = std::string(reinterpret_cast<const char*>(&n), sizeof(n)) + words;
        for (size_t at = 0; at < all.size();) {
            const ssize_t sent = write(fd_, all.data() + at, all.size() - at);
            if (sent <= 0) {
                throw std::runtime_error(std::string("tell the other process: ") + strerror(errno));
            }
            at += size_t(sent);
        }
    }

    std::string hear() const {
        uint32_t n = 0;
        take(&n, sizeof(n));
        if (n > 1u << 20) {
            throw std::runtime_error("the other process tells too much");
        }
        std::string words(n, 0);
        take(words.data(), n);
        return words;
    }

private:
    void take(void* into, size_t n) const {
        for (size_t got = 0; got < n;) {
            pollfd ready{fd_, POLLIN, 0};
            if (poll(&ready, 1, patience_) == 0) {
                throw std::runtime_error("the other process says nothing");
            }
            const ssize_t some = read(fd_, static_cast<char*>(into) + got, n - got);
            if (some <= 0) {
                throw std::runtime_error("the other process has ended");
            }
            got += size_t(some);
        }
    }

    int fd_;
    int patience_;
};

/// The descriptor that a second process finds its line at.
constexpr int kLineFd = 3;

/// The second process. It ends when its line does.
class Second {
public:
    /// Starts this program with `arguments`, and returns when it runs.
    Second(std::vector<std::string> arguments, int patienceSeconds) : line_(start(std::move(arguments)), patienceSeconds) {}

    ~Second() {
        if (pid_ > 0) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
    }

    const Line& line() const { return line_; }

    /// Waits for its end and returns its status.
    int wait() {
        int status = 0;
        waitpid(pid_, &status, 0);
        pid_ = 0;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    }

private:
    int start(std::vector<std::string> arguments) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
            throw std::runtime_error(std::string("make a line to a second process: ") + strerror(errno));
        }
        arguments.insert(arguments.begin(), "/proc/self/exe");
        std::vector<char*> words;
        for (std::string& argument : arguments) {
            words.push_back(argument.data());
        }
        words.push_back(nullptr);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, ends[1], kLineFd);
        const int failed = posix_spawn(&pid_, words[0], &actions, nullptr, words.data(), environ);
        posix_spawn_file_actions_destroy(&actions);
        close(ends[1]);
        if (failed != 0) {
            close(ends[0]);
            throw std::runtime_error(std::string("start a second process: ") + strerror(failed));
        }
        return ends[0];
    }

    pid_t pid_ = 0;
    Line line_;
};

}  // namespace example
