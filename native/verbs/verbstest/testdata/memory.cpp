// SPDX-License-Identifier: MIT
// Protection domains and memory regions. The bytes are moved by the kernel, which tells of memory that was unmapped while it was registered: it
// cannot be accessed then, as with a device that pages on demand.
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "world.hpp"

namespace mori::fake {

Region *find(bool remote, const ibv_pd *domain, uint32_t key, uint64_t addr, uint64_t length, int access) {
    auto &keys = remote ? world().remote : world().local;
    const auto at = keys.find(key);
    if (at == keys.end()) return nullptr;
    Region *r = at->second;
    const bool inside = addr >= r->iova && length <= r->length && addr - r->iova <= r->length - length;
    return r->pd == domain && inside && (r->access & access) == access ? r : nullptr;
}

namespace {

uint64_t host(const Region *region, uint64_t addr) { return uint64_t(region->addr) + (addr - region->iova); }

using Move = ssize_t (*)(pid_t, const iovec *, unsigned long, const iovec *, unsigned long, unsigned long);

bool move(Move call, uint64_t there, void *here, size_t n) {
    iovec mine{here, n}, its{reinterpret_cast<void *>(there), n};
    const ssize_t did = n == 0 ? 0 : call(getpid(), &mine, 1, &its, 1, 0);
    if (did < 0 && errno != EFAULT) misuse("reach memory of this process: errno %d", errno);
    return did == ssize_t(n);
}

// A driver's memory of a GPU has this name, and so have its dma-bufs.
constexpr char kGPU[] = "/memfd:mori-gpu-";

// mapped tells whether a range is mapped, and may be written where that is asked. Memory of a GPU counts only where a peer memory module finds its pages.
bool mapped(uint64_t addr, uint64_t length, bool writable, bool gpu) {
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps == nullptr) misuse("open /proc/self/maps: errno %d", errno);
    uint64_t upto = addr, from, to;
    char rights[5], rest[512];
    while (upto < addr + length && fscanf(maps, "%lx-%lx %4s%511[^\n]%*[^\n]", &from, &to, rights, rest) == 4)
        if (to > upto) {
            if (from > upto || rights[0] != 'r' || (writable && rights[1] != 'w') || (!gpu && strstr(rest, kGPU) != nullptr)) break;
            upto = to;
        }
    fclose(maps);
    return upto >= addr + length;
}

}  // namespace

bool load(const Region *region, uint64_t addr, void *to, size_t n) { return move(process_vm_readv, host(region, addr), to, n); }

bool store(const Region *region, uint64_t addr, const void *from, size_t n) {
    return move(process_vm_writev, host(region, addr), const_cast<void *>(from), n);
}

bool atomically(const Region *region, const Packet &request, uint64_t *before) {
    if (!load(region, request.addr, before, 8)) return false;
    auto *word = reinterpret_cast<uint64_t *>(host(region, request.addr));
    if (request.op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        *before = __atomic_fetch_add(word, request.compare_add, __ATOMIC_SEQ_CST);
        return true;
    }
    *before = request.compare_add;
    __atomic_compare_exchange_n(word, before, request.swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return true;
}

namespace {

// pieces calls with each part of a range of a list of buffers: its region, address, bytes, and where it begins in the range.
template <class Do>
bool pieces(const ibv_pd *domain, const std::vector<ibv_sge> &sges, uint32_t offset, size_t n, int access, Do call) {
    size_t done = 0;
    for (const ibv_sge &s : sges) {
        if (offset >= s.length) {
            offset -= s.length;
            continue;
        }
        const size_t part = std::min<size_t>(s.length - offset, n - done);
        if (part == 0) break;
        const Region *r = find(false, domain, s.lkey, s.addr + offset, part, access);
        if (r == nullptr || !call(r, s.addr + offset, part, done)) return false;
        done += part;
        offset = 0;
    }
    return done == n;
}

}  // namespace

bool gather(const ibv_pd *domain, const std::vector<ibv_sge> &sges, uint32_t offset, uint8_t *to, size_t n) {
    const auto get = [to](const Region *r, uint64_t addr, size_t part, size_t at) { return load(r, addr, to + at, part); };
    return pieces(domain, sges, offset, n, 0, get);
}

bool scatter(const ibv_pd *domain, const std::vector<ibv_sge> &sges, uint32_t offset, const uint8_t *from, size_t n) {
    const auto put = [from](const Region *r, uint64_t addr, size_t part, size_t at) { return store(r, addr, from + at, part); };
    return pieces(domain, sges, offset, n, IBV_ACCESS_LOCAL_WRITE, put);
}

bool usable(const ibv_pd *domain, const std::vector<ibv_sge> &sges, int access) {
    for (const ibv_sge &s : sges)
        if (s.length > 0 && find(false, domain, s.lkey, s.addr, s.length, access) == nullptr) return false;
    return true;
}

uint64_t total(const std::vector<ibv_sge> &sges) {
    uint64_t n = 0;
    for (const ibv_sge &s : sges) n += s.length;
    return n;
}

namespace {

constexpr int kRemoteChanges = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | kRemoteChanges;

int check(const char *call, const Domain *domain, uint64_t addr, uint64_t length, unsigned access, bool gpu) {
    if (const int code = refused(call, of(domain->context), "ibv_reg_mr"); code != 0) return code;
    if ((access & ~(unsigned(kAccess) | IBV_ACCESS_OPTIONAL_RANGE)) != 0) return EOPNOTSUPP;
    if ((access & kRemoteChanges) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return EINVAL;
    if (length == 0 || addr + length < addr || length > big_limit("max_mr_size", ~uint64_t(0))) return EINVAL;
    if (int(world().local.size()) >= limit("max_mr", 1 << 17)) return ENOMEM;
    return mapped(addr, length, (access & IBV_ACCESS_LOCAL_WRITE) != 0, gpu) ? 0 : EFAULT;
}

// enroll makes a region. Keys differ in their last byte by what they are for, and each is another's only after 16 million registrations.
Region *enroll(const char *call, ibv_pd *given, void *addr, size_t length, uint64_t iova, unsigned access, bool gpu = setting("FAKE_VERBS_PEERMEM", 0) != 0) {
    const Lock held(world().lock);
    Domain *domain = alive<Domain>(given, call);
    if (const int code = check(call, domain, uint64_t(addr), length, access, gpu); code != 0) return no<Region>(code);
    note("access", access);
    auto *r = new Region();
    do world().keys = (world().keys + 1) & kSequences;
    while (world().local.count(world().keys << 8 | 0x11) != 0);
    r->context = domain->context;
    r->pd = domain;
    r->addr = addr;
    r->length = length;
    r->iova = iova;
    r->access = int(access);
    r->handle = world().keys;
    r->lkey = world().keys << 8 | 0x11;
    r->rkey = world().keys << 8 | 0x22;
    world().local[r->lkey] = r;
    world().remote[r->rkey] = r;
    domain->users++;
    return r;
}

constexpr uint64_t kPage = 4096;

// open_window maps a part of a dma-buf of an emulated GPU: its file, with its first page and, in the lower 24 bits, how many it has for a position.
int open_window(int fd, uint64_t offset, uint64_t length, void **window, size_t *bytes) {
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    char is[64] = "";
    if (readlink(path.c_str(), is, sizeof is - 1) < 0) return EBADF;
    const off_t position = strncmp(is, kGPU, sizeof kGPU - 1) == 0 ? lseek(fd, 0, SEEK_CUR) : 0;
    const uint64_t first = uint64_t(position) >> 24, pages = uint64_t(position) & 0xffffff;
    if (position <= 0 || length == 0 || offset + length < offset || offset + length > pages * kPage) return EINVAL;
    const uint64_t lead = offset % kPage;
    *bytes = lead + length;
    *window = mmap(nullptr, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, off_t(first * kPage + offset - lead));
    return *window == MAP_FAILED ? ENOMEM : 0;
}

}  // namespace
}  // namespace mori::fake

using namespace mori::fake;

extern "C" {

ibv_pd *ibv_alloc_pd(ibv_context *given) {
    const Lock held(world().lock);
    Context *c = alive<Context>(given, "ibv_alloc_pd");
    int code = refused("ibv_alloc_pd", c);
    if (code == 0 && c->domains >= limit("max_pd", 4096)) code = ENOMEM;
    if (code != 0) return no<ibv_pd>(code);
    auto *domain = new Domain();
    domain->context = c;
    c->domains++;
    return domain;
}

int ibv_dealloc_pd(ibv_pd *given) {
    const Lock held(world().lock);
    Domain *domain = alive<Domain>(given, "ibv_dealloc_pd");
    if (domain->users > 0) return EBUSY;
    of(domain->context)->domains--;
    bury(domain);
    return 0;
}

ibv_mr *ibv_reg_mr(ibv_pd *domain, void *addr, size_t length, int access) {
    return enroll("ibv_reg_mr", domain, addr, length, uint64_t(addr), unsigned(access));
}

ibv_mr *ibv_reg_mr_iova(ibv_pd *domain, void *addr, size_t length, uint64_t iova, int access) {
    return enroll("ibv_reg_mr_iova", domain, addr, length, iova, unsigned(access));
}

ibv_mr *ibv_reg_mr_iova2(ibv_pd *domain, void *addr, size_t length, uint64_t iova, unsigned access) {
    return enroll("ibv_reg_mr_iova2", domain, addr, length, iova, access);
}

ibv_mr *ibv_reg_dmabuf_mr(ibv_pd *domain, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
    void *window = nullptr;
    size_t bytes = 0;
    int code = offset % kPage != iova % kPage ? EINVAL : open_window(fd, offset, length, &window, &bytes);
    if (code != 0) return no<ibv_mr>(code);
    Region *r = enroll("ibv_reg_dmabuf_mr", domain, static_cast<char *>(window) + offset % kPage, length, iova, unsigned(access), true);
    if (r == nullptr) {
        code = errno;
        munmap(window, bytes);
        return no<ibv_mr>(code);
    }
    const Lock held(world().lock);
    note("dmabuf", length);
    r->window = window;
    r->window_bytes = bytes;
    return r;
}

int ibv_dereg_mr(ibv_mr *given) {
    const Lock held(world().lock);
    Region *r = alive<Region>(given, "ibv_dereg_mr");
    if (const int code = told("ibv_dereg_mr"); code != 0) return code;
    world().local.erase(r->lkey);
    world().remote.erase(r->rkey);
    static_cast<Domain *>(r->pd)->users--;
    if (r->window != nullptr) munmap(r->window, r->window_bytes);
    bury(r);
    return 0;
}
}
