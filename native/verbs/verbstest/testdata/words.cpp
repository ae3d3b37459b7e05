// SPDX-License-Identifier: MIT
// The words for numbers, and calls that these devices have not.
#include <cerrno>
#include <cstddef>

#include "../../abi.h"

namespace {

template <size_t n>
const char *word(const char *const (&words)[n], int at) {
    return at >= 0 && size_t(at) < n ? words[at] : "unknown";
}

}  // namespace

extern "C" {

const char *ibv_wc_status_str(ibv_wc_status status) {
    static const char *const words[] = {
        "success",
        "local length error",
        "local QP operation error",
        "local EE context operation error",
        "local protection error",
        "flushed",
        "memory window bind error",
        "bad response",
        "local access error",
        "remote invalid request",
        "remote access error",
        "remote operation error",
        "transport retries exceeded",
        "RNR retries exceeded",
        "local RDD violation",
        "remote invalid RD request",
        "aborted",
        "invalid EE context number",
        "invalid EE context state",
        "fatal error",
        "response timeout",
        "general error"};
    return word(words, status);
}

const char *ibv_event_type_str(ibv_event_type type) {
    static const char *const words[] = {
        "CQ error",
        "QP fatal",
        "QP request error",
        "QP access error",
        "communication established",
        "send queue drained",
        "path migrated",
        "path migration error",
        "device fatal",
        "port active",
        "port error",
        "LID change",
        "P_Key change",
        "SM change",
        "SRQ error",
        "SRQ limit reached",
        "last WQE reached",
        "client reregistration",
        "GID change"};
    return word(words, type);
}

const char *ibv_node_type_str(ibv_node_type type) {
    static const char *const words[] = {"unknown", "InfiniBand channel adapter", "InfiniBand switch", "InfiniBand router", "iWARP NIC"};
    return word(words, type);
}

const char *ibv_port_state_str(ibv_port_state state) {
    static const char *const words[] = {"no state change (NOP)", "down", "init", "armed", "active", "active defer"};
    return word(words, state);
}

ibv_srq *ibv_create_srq(ibv_pd *, ibv_srq_init_attr *) {
    errno = ENOSYS;
    return nullptr;
}
}
