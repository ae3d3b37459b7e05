// SPDX-License-Identifier: MIT
// The end of each source that the emulated GPU has kernels of, see emulator.sh: MORI_FAKE_KERNEL(name, threads) makes one known
// by its name. Its arguments are taken from where C has them in a struct, as drivers do.
#pragma once

#include <string.h>

#include <type_traits>

#include "fake_kernels.h"

extern "C" void fake_kernel_add(fake_kernel *kernel);

namespace mori::fake {

template <class T>
constexpr size_t after(size_t at) {
    return (at + alignof(T) - 1) / alignof(T) * alignof(T) + sizeof(T);
}

template <class... Args>
constexpr size_t packed() {
    size_t at = 0;
    ((at = after<Args>(at)), ...);
    return at;
}

template <class T>
T take(const char *args, size_t *at) {
    std::remove_const_t<T> value;
    *at = after<T>(*at);
    memcpy(&value, args + *at - sizeof(T), sizeof(T));
    return value;
}

template <auto kernel>
struct Caller;

template <class Result, class... Args, Result (*kernel)(Args...)>
struct Caller<kernel> {
    static constexpr size_t bytes = packed<Args...>();

    static void call(const void *args) {
        [[maybe_unused]] size_t at = 0;
        struct Call {
            explicit Call(Args... each) { (void)kernel(each...); }
        };
        // Braces evaluate from the left.
        [[maybe_unused]] Call done{take<Args>(static_cast<const char *>(args), &at)...};
    }
};

}  // namespace mori::fake

#define MORI_FAKE_KERNEL(name, threads)                                                                            \
    namespace {                                                                                                    \
    fake_kernel fake_##name{#name, mori::fake::Caller<&name>::bytes, threads, mori::fake::Caller<&name>::call, nullptr}; \
    [[maybe_unused]] const bool fake_has_##name = (fake_kernel_add(&fake_##name), true);                           \
    }
