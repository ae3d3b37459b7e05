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

// Variables lists every variable that mori reads, with its current value.
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
		{Name: IOLogLevel, Default: "", Meaning: "log level of mori.io; overrides " + GlobalLogLevel},
		{Name: LogFile, Default: "", Meaning: "file that also receives the log; truncated on first use"},
		{Name: DisableLogging, Default: "off", Meaning: "1 or true: log only critical messages"},
		{Name: RequireRDMA, Default: "off", Meaning: "create_backend(RDMA) fails without an RDMA device, instead of using shared memory and TCP"},
		{Name: FabricProvider, Default: "all", Meaning: "transports that mori may use: a,b in this order, or ^c to exclude"},
		{Name: AuthSecret, Default: "", Meaning: "secret that engines must share to talk to each other (HMAC-SHA256 in both directions); never shown", secret: true},
		{Name: TLSCert, Default: "", Meaning: "PEM file with this engine's certificate; with " + TLSKey + " and " + TLSCA + " all control and TCP data connections use TLS"},
		{Name: TLSKey, Default: "", Meaning: "PEM file with the certificate's private key"},
		{Name: TLSCA, Default: "", Meaning: "PEM file with the authorities that must have signed the peers' certificates"},
		{Name: MetricsPort, Default: "off", Meaning: "port of an HTTP server with /metrics (Prometheus), /stats.json, /trace.json and a web page; one server for all engines of the process"},
		{Name: MetricsHost, Default: "127.0.0.1", Meaning: "listening address of the HTTP server of " + MetricsPort + "; it has no password"},
		{Name: TraceDir, Default: "", Meaning: "folder that receives a trace (Perfetto JSON) when a transfer misses its deadline; at most one in 10 s"},
		{Name: IOCPTimeout, Default: "5000", Meaning: "time limit of one control-plane exchange in ms, at most 86400000; 0: none"},
		{Name: IODeadline, Default: "30000", Meaning: "time limit of one transfer in ms; 0: none"},
		{Name: IOLease, Default: "15000", Meaning: "how long a peer with open connections may show no sign of life before mori closes them, in ms; 0: forever"},
		{Name: IOMaxPending, Default: "65536", Meaning: "most pending transfers to one peer; each 256 entries of a batch count as one more. A submission beyond that waits for room, within its deadline and 30 s at most, and then fails. 0: no limit"},
		{Name: IOChecksum, Default: "off", Meaning: "1 or true: the receiver compares a crc32c of all payload over TCP; the sender repeats what differs"},
		{Name: IOCompress, Default: "off", Meaning: "on, 1 or true: compress payload that this side sends over TCP with zstd, 64 KiB to 4 MiB at a time, if that is faster"},
		{Name: IOSample, Default: "0", Meaning: "n: compare both ends of every n-th op over shared memory after the copy, and repeat what differs; 0: none"},
		{Name: IONotification, Default: "config", Meaning: "overrides enable_notification"},
		{Name: IOChunking, Default: "config", Meaning: "overrides enable_transfer_chunking"},
		{Name: IOChunkBytes, Default: "config", Meaning: "overrides chunk_bytes"},
		{Name: IOMaxChunks, Default: "config", Meaning: "overrides max_chunks_per_transfer"},
		{Name: IONICsPerTransfer, Default: "config", Meaning: "overrides num_nics_per_transfer"},
		{Name: IOQPPerTransfer, Default: "config", Meaning: "overrides qp_per_transfer"},
		{Name: IOPostBatchSize, Default: "config", Meaning: "overrides post_batch_size: -1 or positive"},
		{Name: IONumWorkerThreads, Default: "config", Meaning: "overrides num_worker_threads"},
		{Name: IOPollCqMode, Default: "config", Meaning: "overrides poll_cq_mode: 0, polling, 1, event"},
		{Name: EPTimeout, Default: "30000", Meaning: "how long a dispatch or combine waits for other ranks, in ms; 0: forever"},
		{Name: EPDevice, Default: "where the symmetric heap is", Meaning: "where ops have their buffers: host, or gpu, which requires the symmetric heap on a GPU"},
		{Name: EPThreads, Default: "processors / PEs of the host", Meaning: "threads of a rank that move and sum rows in host memory"},
		{Name: EPLaunchConfigMode, Default: "MANUAL", Meaning: "how launches on a GPU are chosen. MANUAL: by the call, the configuration and a model. AUTO: also by the tables of " + EPTuning},
		{Name: EPTuning, Default: "~/.config/mori/ep-tuning.json", Meaning: "file with the tables of mori tune ep, for mode AUTO"},
		{Name: EPBlocks, Default: "half of the multiprocessors", Meaning: "most GPU blocks that dispatch and combine use, if neither the call nor the configuration sets a number"},
		{Name: FP8CombineScaleDim, Default: "56", Meaning: "scales of a row if combine quantises by blocks"},
		{Name: ShmemLogLevel, Default: "", Meaning: "log level of mori.shmem; overrides " + GlobalLogLevel},
		{Name: ShmemDevice, Default: "gpu if the host has one", Meaning: "where the symmetric heap is: gpu or host"},
		{Name: ShmemNIC, Default: "none", Meaning: "NIC whose queues kernels post to if loads and stores do not reach a PE: a name such as mlx5_0, or emu0 for an emulated NIC. Unset: a host proxy posts for the kernels"},
		{Name: ShmemGPU, Default: "the current device", Meaning: "GPU of the symmetric heap, by its number in this process; if unset and no GPU is current: by the rank on this host"},
		{Name: ShmemMode, Default: "static_heap", Meaning: "static_heap, vmm_heap (grows in chunks) or isolation (each allocation has its own mapping)"},
		{Name: ShmemHeapSize, Default: "4G", Meaning: "size of the symmetric heap of each PE, such as 512M; the limit of a vmm_heap, which defaults to 16G. The kernel allocates pages on first use"},
		{Name: ShmemHeapType, Default: "uncached", Meaning: "uncached or normal; no effect in host memory"},
		{Name: ShmemVMMChunkSize, Default: "64M", Meaning: "step by which a vmm_heap grows; at least 64M"},
		{Name: ShmemTimeout, Default: BootstrapTimeout, Meaning: "time limit of waits and collective calls of mori.shmem in s; 0: none"},
		{Name: ShmemBitcode, Default: "the package's", Meaning: "file with the device library as LLVM bitcode, which mori.ir uses instead of its own"},
		{Name: DisableP2P, Default: "off", Meaning: "1 or true: PEs of one host do not map each other's memory, but use a transport"},
		{Name: NumQPPerPE, Default: "4", Meaning: "queue pairs to each PE, on devices that have queue pairs"},
		{Name: SocketIfname, Default: "the first that is not loopback", Meaning: "network interfaces through which ranks reach rank 0: names or prefixes, separated by commas; IPv4 before IPv6"},
		{Name: BootstrapTimeout, Default: "300", Meaning: "how long ranks wait for each other at the start, and in exchanges without a limit of their own, in s"},
		{Name: BootstrapRank, Default: "from the launcher", Meaning: "this process's rank, with " + BootstrapSize + " and " + BootstrapPlace + "; overrides the launcher"},
		{Name: BootstrapSize, Default: "from the launcher", Meaning: "number of ranks"},
		{Name: BootstrapPlace, Default: "from the launcher", Meaning: "where ranks rendezvous: host:port of rank 0, or the path of a file that all ranks can access"},
		{Name: KernelDir, Default: "the package's", Meaning: "folder of the compiled GPU kernels: <name>.<architecture>.ptx and .hsaco"},
		{Name: P2PBlocks, Default: "by size", Meaning: "GPU blocks that copy a list of small pieces within the host; if set, batches run one after the other"},
		{Name: DisableAutoXGMI, Default: "1", Meaning: "0: create_backend(RDMA) also creates an XGMI backend if the host has GPUs; with " + RequireRDMA + " and no RDMA device it creates only XGMI"},
		{Name: RDMADevices, Default: "all active ones", Meaning: "RDMA devices that mori may use: a,b in this order, or ^a,b to exclude; mlx5_0:2 names a port"},
		{Name: IORDMANICIdx, Default: "by NUMA node", Meaning: "index of the only RDMA device for host memory, as in mori doctor"},
		{Name: IORailAffinity, Default: "off", Meaning: "1 or true: both ends of a transfer use RDMA devices of the same index"},
		{Name: DisableTopo, Default: "off", Meaning: "1 or true: use RDMA devices in index order, wherever they and the memory are"},
		{Name: IBGIDIndex, Default: "the best", Meaning: "index of the GID of RDMA ports; the best is RoCE v2 with IPv4"},
		{Name: IBPathMTU, Default: "the port's", Meaning: "largest payload of an RDMA packet: 256, 512, 1024, 2048 or 4096; limited by both ports"},
		{Name: IBRelaxedOrdering, Default: "off", Meaning: "1 or true: register memory with relaxed ordering, so that a NIC's writes may pass earlier ones, if device and platform support it"},
		{Name: EnableDMABufReg, Default: "off", Meaning: "1 or true: register GPU memory by dma-buf first, else by a peer memory module (nvidia_peermem); otherwise the reverse"},
		{Name: RDMASL, Default: "0", Meaning: "service level of RDMA traffic, 0 to 15"},
		{Name: RDMATC, Default: "0", Meaning: "traffic class of RDMA traffic, 0 to 255: DSCP in the upper 6 bits"},
		{Name: IOSL, Default: RDMASL, Meaning: "service level of mori.io's RDMA traffic"},
		{Name: IOTC, Default: RDMATC, Meaning: "traffic class of mori.io's RDMA traffic"},
		{Name: IOTCDisable, Default: "off", Meaning: "1 or true: mori.io's RDMA traffic has traffic class 0, regardless of " + IOTC + " and " + RDMATC},
		{Name: IOQPMaxSendWR, Default: "config, else 1024", Meaning: "overrides max_send_wr: pending work requests of an RDMA queue pair"},
		{Name: IOQPMaxRecvWR, Default: "notif_per_qp", Meaning: "notifications that a peer may have pending to an RDMA queue pair; more use its TCP connection"},
		{Name: IOQPMaxCQE, Default: "config, else what the queue pairs need", Meaning: "overrides max_cqe_num: entries of an RDMA completion queue; a short queue limits the pending work requests"},
		{Name: IOQPMaxMsgSGE, Default: "config, else 4", Meaning: "overrides max_msg_sge: scatter/gather entries of one RDMA work request"},
		{Name: IOQPMaxSGE, Default: IOQPMaxMsgSGE, Meaning: "alias of " + IOQPMaxMsgSGE},
		{Name: IOQPMaxInlineData, Default: "64", Meaning: "largest inline write in bytes; 0: no inline data, and notifications use TCP"},
		{Name: IOAsyncEvents, Default: "on", Meaning: "0 or false: ignore events of RDMA devices (port down, device removed); retries then detect such failures"},
	}
}
