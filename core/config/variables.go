// SPDX-License-Identifier: MIT

package config

// The names of all variables that mori reads.
const (
	NodeID             = "MORI_NODE_ID"
	GlobalLogLevel     = "MORI_GLOBAL_LOG_LEVEL"
	IOLogLevel         = "MORI_IO_LOG_LEVEL"
	DisableLogging     = "MORI_DISABLE_LOGGING"
	LogFile            = "MORI_LOG_FILE"
	RequireRDMA        = "MORI_REQUIRE_RDMA"
	FabricProvider     = "FABRIC_PROVIDER"
	AuthSecret         = "MORI_AUTH_SECRET"
	TLSCert            = "MORI_TLS_CERT"
	TLSKey             = "MORI_TLS_KEY"
	TLSCA              = "MORI_TLS_CA"
	MetricsPort        = "MORI_METRICS_PORT"
	MetricsHost        = "MORI_METRICS_HOST"
	TraceDir           = "MORI_TRACE_DIR"
	IOCPTimeout        = "MORI_IO_CP_TIMEOUT_MS"
	IODeadline         = "MORI_IO_DEADLINE_MS"
	IOLease            = "MORI_IO_LEASE_MS"
	IOMaxPending       = "MORI_IO_MAX_PENDING"
	IOChecksum         = "MORI_IO_CHECKSUM"
	IOSample           = "MORI_IO_SAMPLE"
	IOCompress         = "MORI_IO_COMPRESS"
	IONotification     = "MORI_IO_ENABLE_NOTIFICATION"
	IOChunking         = "MORI_IO_ENABLE_CHUNKING"
	IOChunkBytes       = "MORI_IO_CHUNK_BYTES"
	IOMaxChunks        = "MORI_IO_MAX_CHUNKS"
	IONICsPerTransfer  = "MORI_IO_NUM_NICS_PER_TRANSFER"
	IOQPPerTransfer    = "MORI_IO_QP_PER_TRANSFER"
	IOPostBatchSize    = "MORI_IO_POST_BATCH_SIZE"
	IONumWorkerThreads = "MORI_IO_NUM_WORKER_THREADS"
	IOPollCqMode       = "MORI_IO_POLL_CQ_MODE"
	EPTimeout          = "MORI_EP_TIMEOUT_MS"
	EPThreads          = "MORI_EP_THREADS"
	EPDevice           = "MORI_EP_DEVICE"
	EPLaunchConfigMode = "MORI_EP_LAUNCH_CONFIG_MODE"
	EPTuning           = "MORI_EP_TUNING_CONFIG"
	EPBlocks           = "MORI_EP_BLOCKS"
	FP8CombineScaleDim = "MORI_FP8_COMBINE_SCALE_DIM"
	ShmemLogLevel      = "MORI_SHMEM_LOG_LEVEL"
	ShmemDevice        = "MORI_SHMEM_DEVICE"
	ShmemGPU           = "MORI_SHMEM_GPU"
	ShmemNIC           = "MORI_SHMEM_NIC"
	ShmemMode          = "MORI_SHMEM_MODE"
	ShmemHeapSize      = "MORI_SHMEM_HEAP_SIZE"
	ShmemHeapType      = "MORI_SHMEM_HEAP_TYPE"
	ShmemVMMChunkSize  = "MORI_SHMEM_VMM_CHUNK_SIZE"
	ShmemTimeout       = "MORI_SHMEM_TIMEOUT"
	ShmemBitcode       = "MORI_SHMEM_BC"
	DisableP2P         = "MORI_DISABLE_P2P"
	NumQPPerPE         = "MORI_NUM_QP_PER_PE"
	SocketIfname       = "MORI_SOCKET_IFNAME"
	BootstrapTimeout   = "MORI_BOOTSTRAP_TIMEOUT"
	BootstrapRank      = "MORI_RANK"
	BootstrapSize      = "MORI_WORLD_SIZE"
	BootstrapPlace     = "MORI_BOOTSTRAP"
	KernelDir          = "MORI_KERNEL_DIR"
	P2PBlocks          = "MORI_P2P_BLOCKS"
	DisableAutoXGMI    = "MORI_DISABLE_AUTO_XGMI"
	RDMADevices        = "MORI_RDMA_DEVICES"
	IORDMANICIdx       = "MORI_IO_RDMA_NIC_IDX"
	IORailAffinity     = "MORI_IO_RAIL_AFFINITY"
	DisableTopo        = "MORI_DISABLE_TOPO"
	IBGIDIndex         = "MORI_IB_GID_INDEX"
	IBPathMTU          = "MORI_IB_PATH_MTU"
	IBRelaxedOrdering  = "MORI_IB_ENABLE_RELAXED_ORDERING"
	EnableDMABufReg    = "MORI_ENABLE_DMABUF_REG"
	RDMASL             = "MORI_RDMA_SL"
	RDMATC             = "MORI_RDMA_TC"
	IOSL               = "MORI_IO_SL"
	IOTC               = "MORI_IO_TC"
	IOTCDisable        = "MORI_IO_TC_DISABLE"
	IOQPMaxSendWR      = "MORI_IO_QP_MAX_SEND_WR"
	IOQPMaxRecvWR      = "MORI_IO_QP_MAX_RECV_WR"
	IOQPMaxCQE         = "MORI_IO_QP_MAX_CQE"
	IOQPMaxMsgSGE      = "MORI_IO_QP_MAX_MSG_SGE"
	IOQPMaxSGE         = "MORI_IO_QP_MAX_SGE"
	IOQPMaxInlineData  = "MORI_IO_QP_MAX_INLINE_DATA"
	IOAsyncEvents      = "MORI_IO_ENABLE_ASYNC_EVENTS"
)

// A Variable describes one environment variable.
type Variable struct {
	Name    string `json:"name"`
	Default string `json:"default"`
	Meaning string `json:"meaning"`
	Value   string `json:"value"` // at the time of the call, "" if unset

	secret bool // Value is hidden
}

// Variables lists every variable that is read today, with its present value.
func Variables() []Variable {
	all := variables()
	for i := range all {
		if all[i].Value = Get(all[i].Name); all[i].secret && all[i].Value != "" {
			all[i].Value = "(set)"
		}
	}
	return all
}

func variables() []Variable {
	return []Variable{
		{Name: NodeID, Default: "boot id, else hostname", Meaning: "identity of this host; engines with equal ids may use shared memory"},
		{Name: GlobalLogLevel, Default: "warn", Meaning: "log level of all modules: trace, debug, info, warn, error, critical; the log goes to standard error"},
		{Name: IOLogLevel, Default: "", Meaning: "log level of mori.io; beats " + GlobalLogLevel},
		{Name: LogFile, Default: "", Meaning: "file that receives the log as well; truncated when first used"},
		{Name: DisableLogging, Default: "off", Meaning: "1 or true: only critical messages"},
		{Name: RequireRDMA, Default: "off", Meaning: "create_backend(RDMA) fails where no RDMA device is, instead of using shared memory and TCP"},
		{Name: FabricProvider, Default: "all", Meaning: "transports that may be used: a,b or ^c to exclude"},
		{Name: AuthSecret, Default: "", Meaning: "secret that engines must share to talk to each other (HMAC-SHA256, both directions); never shown", secret: true},
		{Name: TLSCert, Default: "", Meaning: "PEM file with this engine's certificate; with " + TLSKey + " and " + TLSCA + " all control and TCP data connections use TLS"},
		{Name: TLSKey, Default: "", Meaning: "PEM file with the certificate's private key"},
		{Name: TLSCA, Default: "", Meaning: "PEM file with the authorities whose certificates peers must show"},
		{Name: MetricsPort, Default: "off", Meaning: "port of an HTTP server with /metrics (Prometheus), /stats.json, /trace.json and a page to look at; one for all engines of the process"},
		{Name: MetricsHost, Default: "127.0.0.1", Meaning: "address that the HTTP server of " + MetricsPort + " listens on; it asks nobody for a password"},
		{Name: TraceDir, Default: "", Meaning: "folder that receives a trace (Perfetto JSON) when a transfer fails by its deadline; at most one in 10 s"},
		{Name: IOCPTimeout, Default: "5000", Meaning: "time limit of one control-plane exchange, ms; 0 = none, at most 86400000"},
		{Name: IODeadline, Default: "30000", Meaning: "time limit of one transfer, ms; 0 = none"},
		{Name: IOLease, Default: "15000", Meaning: "how long a peer with open connections may give no sign of life before they are given up, ms; 0 = for ever"},
		{Name: IOMaxPending, Default: "65536", Meaning: "most transfers to one peer that have not ended, each 256 entries of a batch counting as one more; a submission beyond waits for room, within its deadline and 30 s, and fails then; 0 = no limit"},
		{Name: IOChecksum, Default: "off", Meaning: "1 or true: crc32c of all payload over TCP, compared at its destination; what differs is sent again"},
		{Name: IOCompress, Default: "off", Meaning: "on, 1 or true: zstd of payload over TCP that this side sends, 64 KiB to 4 MiB at a time, where that is faster"},
		{Name: IOSample, Default: "0", Meaning: "n: both ends of every n-th op through shared memory are compared after the copy; what differs is copied again; 0 = none"},
		{Name: IONotification, Default: "config", Meaning: "overrides enable_notification"},
		{Name: IOChunking, Default: "config", Meaning: "overrides enable_transfer_chunking"},
		{Name: IOChunkBytes, Default: "config", Meaning: "overrides chunk_bytes"},
		{Name: IOMaxChunks, Default: "config", Meaning: "overrides max_chunks_per_transfer"},
		{Name: IONICsPerTransfer, Default: "config", Meaning: "overrides num_nics_per_transfer"},
		{Name: IOQPPerTransfer, Default: "config", Meaning: "overrides qp_per_transfer"},
		{Name: IOPostBatchSize, Default: "config", Meaning: "overrides post_batch_size: -1 or positive"},
		{Name: IONumWorkerThreads, Default: "config", Meaning: "overrides num_worker_threads"},
		{Name: IOPollCqMode, Default: "config", Meaning: "overrides poll_cq_mode: 0, polling, 1, event"},
		{Name: EPTimeout, Default: "30000", Meaning: "how long a dispatch or combine waits for other ranks, ms; 0 = without end"},
		{Name: EPDevice, Default: "where the symmetric heap is", Meaning: "where ops have their buffers: gpu, which wants the symmetric heap there, or host"},
		{Name: EPThreads, Default: "processors / PEs of the host", Meaning: "threads of a rank that move and sum rows on host memory"},
		{Name: EPLaunchConfigMode, Default: "MANUAL", Meaning: "how launches on a GPU are chosen: MANUAL, by the calls, the configuration and a model; AUTO, by the tables of " + EPTuning + ", too"},
		{Name: EPTuning, Default: "~/.config/mori/ep-tuning.json", Meaning: "file with the tables of mori tune ep, for launches in mode AUTO"},
		{Name: EPBlocks, Default: "half of the multiprocessors", Meaning: "most blocks of a GPU that dispatch and combine take, where neither the call nor the configuration says how many"},
		{Name: FP8CombineScaleDim, Default: "56", Meaning: "scales of a row where combine quantises blockwise"},
		{Name: ShmemLogLevel, Default: "", Meaning: "log level of mori.shmem; beats " + GlobalLogLevel},
		{Name: ShmemDevice, Default: "gpu if there is one", Meaning: "where the symmetric heap is: gpu or host"},
		{Name: ShmemNIC, Default: "none", Meaning: "the NIC to whose queues kernels post by themselves where loads and stores do not reach a PE, such as mlx5_0, or emu0, an emulated one; unset: the host posts for them"},
		{Name: ShmemGPU, Default: "the current device", Meaning: "which GPU the symmetric heap is on, by its number in this process; unset and none current: by the rank on this host"},
		{Name: ShmemMode, Default: "static_heap", Meaning: "static_heap, vmm_heap (grows in chunks) or isolation (each allocation is a mapping of its own)"},
		{Name: ShmemHeapSize, Default: "4G", Meaning: "size of the symmetric heap of each PE, such as 512M; of a vmm_heap what it may grow to, default 16G. Pages are taken when they are touched"},
		{Name: ShmemHeapType, Default: "uncached", Meaning: "uncached or normal; no difference on host memory"},
		{Name: ShmemVMMChunkSize, Default: "64M", Meaning: "what a vmm_heap grows by; at least 64M"},
		{Name: ShmemTimeout, Default: BootstrapTimeout, Meaning: "time limit of waits and collective calls of mori.shmem, s; 0 = none"},
		{Name: ShmemBitcode, Default: "of the package", Meaning: "file with the device library as LLVM bitcode, which mori.ir names instead of its own"},
		{Name: DisableP2P, Default: "off", Meaning: "1 or true: PEs of one host do not map each other's memory, but go through a transport"},
		{Name: NumQPPerPE, Default: "4", Meaning: "queue pairs for each PE, of devices that have them"},
		{Name: SocketIfname, Default: "first that is not loopback", Meaning: "network interface by which ranks reach rank 0: name or start of a name, or several with commas; IPv4 before IPv6"},
		{Name: BootstrapTimeout, Default: "300", Meaning: "how long ranks wait for each other at the start, and in exchanges without a limit of their own, s"},
		{Name: BootstrapRank, Default: "as the launcher says", Meaning: "this process's rank, with " + BootstrapSize + " and " + BootstrapPlace + "; beats what a launcher has set"},
		{Name: BootstrapSize, Default: "as the launcher says", Meaning: "how many ranks there are"},
		{Name: BootstrapPlace, Default: "as the launcher says", Meaning: "where ranks meet: host:port of rank 0, or the path of a file that all of them see"},
		{Name: KernelDir, Default: "of the package", Meaning: "folder of the compiled GPU kernels: <name>.<architecture>.ptx and .hsaco"},
		{Name: P2PBlocks, Default: "by size", Meaning: "how many blocks of a GPU copy scattered pieces to and from other memories of the host, one batch after the other then"},
		{Name: DisableAutoXGMI, Default: "1", Meaning: "begins with 0: create_backend(RDMA) creates an XGMI backend, too, where there are GPUs; with " + RequireRDMA + " and without an RDMA device it creates that alone"},
		{Name: RDMADevices, Default: "all that are active", Meaning: "RDMA devices that may be used: a,b in this order or ^a,b to exclude; a port is written as in mlx5_0:2"},
		{Name: IORDMANICIdx, Default: "by NUMA node", Meaning: "index of the only RDMA device for host memory, as mori doctor numbers them"},
		{Name: IORailAffinity, Default: "off", Meaning: "1 or true: both ends of a transfer use RDMA devices of the same index"},
		{Name: DisableTopo, Default: "off", Meaning: "1 or true: RDMA devices are used in their order, wherever they and the memory are"},
		{Name: IBGIDIndex, Default: "the best", Meaning: "index of the address that RDMA ports are reached by; the best is RoCE v2 with IPv4"},
		{Name: IBPathMTU, Default: "the port's", Meaning: "most payload of an RDMA packet: 256, 512, 1024, 2048 or 4096; never more than both ports have"},
		{Name: IBRelaxedOrdering, Default: "off", Meaning: "1 or true: what RDMA devices write to memory may pass what they wrote before, where device and platform can"},
		{Name: EnableDMABufReg, Default: "off", Meaning: "1 or true: GPU memory is shown to RDMA devices by dma-buf first, and by a peer memory module (nvidia_peermem) if that fails; else the other way round"},
		{Name: RDMASL, Default: "0", Meaning: "service level of RDMA traffic, 0 to 15"},
		{Name: RDMATC, Default: "0", Meaning: "traffic class of RDMA traffic, 0 to 255: DSCP in the upper 6 bits"},
		{Name: IOSL, Default: RDMASL, Meaning: "service level of mori.io's RDMA traffic"},
		{Name: IOTC, Default: RDMATC, Meaning: "traffic class of mori.io's RDMA traffic"},
		{Name: IOTCDisable, Default: "off", Meaning: "1 or true: mori.io's RDMA traffic has traffic class 0, whatever " + IOTC + " and " + RDMATC + " say"},
		{Name: IOQPMaxSendWR, Default: "config, else 1024", Meaning: "overrides max_send_wr: work requests under way on an RDMA queue pair"},
		{Name: IOQPMaxRecvWR, Default: "notif_per_qp", Meaning: "notifications that a peer may have under way to an RDMA queue pair; more go over its TCP connection"},
		{Name: IOQPMaxCQE, Default: "config, else what the queue pairs need", Meaning: "overrides max_cqe_num: entries of an RDMA completion queue; fewer than its queue pairs need let fewer work requests be under way"},
		{Name: IOQPMaxMsgSGE, Default: "config, else 4", Meaning: "overrides max_msg_sge: pieces of local memory of one RDMA work request"},
		{Name: IOQPMaxSGE, Default: IOQPMaxMsgSGE, Meaning: "another name of " + IOQPMaxMsgSGE},
		{Name: IOQPMaxInlineData, Default: "64", Meaning: "bytes of a write that the processor hands to the RDMA device itself; 0 = none, and notifications go over TCP then"},
		{Name: IOAsyncEvents, Default: "on", Meaning: "0 or false: events of RDMA devices (port down, device removed) are not watched; what is under way finds out by its retries"},
	}
}
