// SPDX-License-Identifier: Apache-2.0
#include "base/env.hpp"

#include "base/text.hpp"
#include "base/throw_error.hpp"

#include <cstdlib>
#include <tutti/error.hpp>

namespace tutti::base {
namespace {

namespace g {
constexpr std::string_view place = "Ranks and where they meet";
constexpr std::string_view network = "Network";
constexpr std::string_view security = "Security";
constexpr std::string_view failure = "Time limits";
constexpr std::string_view speed = "Speed";
constexpr std::string_view records = "Records and checks";
constexpr std::string_view devices = "Devices";
constexpr std::string_view starters = "Of other starters, read only";
constexpr std::string_view internal = "Between tutti-run and its ranks";
}  // namespace g

// clang-format off
constexpr variable table[] = {
  {g::place, "RANK", "0..WORLD_SIZE-1", "this process's rank"},
  {g::place, "WORLD_SIZE", "1..", "number of ranks"},
  {g::place, "LOCAL_RANK", "0..", "this process's number among the ranks of its host"},
  {g::place, "LOCAL_WORLD_SIZE", "1..", "number of ranks on this host"},
  {g::place, "NODE_RANK", "0..", "this node's number; tutti-run sets it for programs that ask"},
  {g::place, "NNODES", "1..", "number of nodes; tutti-run sets it for programs that ask"},
  {g::place, "GROUP_RANK", "0..", "NODE_RANK under torchrun's name"},
  {g::place, "GROUP_WORLD_SIZE", "1..", "NNODES under torchrun's name"},
  {g::place, "MASTER_ADDR", "HOST", "where the ranks meet: rank 0 listens there"},
  {g::place, "MASTER_PORT", "1..65535", "the port of MASTER_ADDR; tutti-run leaves the one that it sets to the program, for PyTorch's store, and its ranks meet at another one"},
  {g::place, "TUTTI_MASTER_PORT", "MASTER_PORT + 1|PORT", "under torchrun: the port where the ranks meet, since torchrun's store has MASTER_PORT"},
  {g::place, "TUTTI_STORE", "etcd://HOST:PORT[,HOST:PORT...]/JOB", "the ranks meet in this etcd, under the name JOB; with --nnodes MIN:MAX the launchers, too; etcds:// with the certificates of TUTTI_TLS_CERTIFICATE"},
  {g::place, "TUTTI_BACKEND", "native|mpi", "mpi: the processes that mpirun started communicate over that MPI"},
  {g::place, "TUTTI_MPI_MODULE", "FILE", "MPI for TUTTI_BACKEND=mpi: its libmpi_abi.so.1, or libtutti_mpi_openmpi.so or _mpich.so; default: the MPI of the mpirun that started the program"},
  {g::place, "TUTTI_JOB_ID", "TEXT", "the same for all ranks of one start, different for every other: ranks of another start do not join; tutti-run sets it"},
  {g::place, "TUTTI_RESTART_COUNT", "0..", "number of this start: 0, then one more per restart; tutti-run sets it"},
  {g::place, "TUTTI_MAX_RESTARTS", "0..", "the --max-restarts of tutti-run, which sets it"},
  {g::place, "TUTTI_REJOIN", "0|1", "1: failed ranks are started again one by one and rejoin the others; tutti-run --on-failure restart sets it"},
  {g::place, "TUTTI_ELASTIC", "first|newcomer", "nodes may come and go; newcomer: this rank was started while others ran; RANK and WORLD_SIZE then only number the processes; tutti-run --nnodes MIN:MAX sets it"},

  {g::network, "TUTTI_TRANSPORTS", "shm,ucx,tcp", "the transports that may be used, in this order of preference; by default ucx only between hosts with RDMA devices, and with ucx named also without"},
  {g::network, "TUTTI_INTERFACE", "NAME[,NAME...]", "the network interface on which this rank listens for TCP: the first in the list that exists"},
  {g::network, "TUTTI_ADDRESS", "ADDRESS", "the numeric address on which this rank listens for TCP"},
  {g::network, "TUTTI_TCP_CONNECTIONS", "1|2..8", "TCP connections that share the long messages (over 512 KiB) of two ranks, the fewer of what both say; for networks on which one connection does not fill the line"},
  {g::network, "TUTTI_HOST_ID", "TEXT[,TEXT...]", "stands for another host: ranks with different values do not share memory; a list has one value per rank"},

  {g::security, "TUTTI_SECRET", "TEXT", "the job's secret, the same on all ranks; tutti-run makes one; without it ranks listen on loopback only"},
  {g::security, "TUTTI_CHECKSUMS", "0|1", "1: payload over TCP has checksums, as headers always have; damaged data is errc::protocol; the same on all ranks"},
  {g::security, "TUTTI_TLS", "0|1", "1: TLS 1.3 for everything over TCP, between launchers as well; needs no certificates, since the secret identifies the ranks; the same on all ranks and for tutti-run"},
  {g::security, "TUTTI_TLS_CERTIFICATE", "FILE", "this rank's certificate in PEM; %r stands for the rank, in tutti-run for launcher; one that names URI:tutti:rank:3 is valid for rank 3 only, and not for tutti-run"},
  {g::security, "TUTTI_TLS_KEY", "FILE", "the key of TUTTI_TLS_CERTIFICATE in PEM"},
  {g::security, "TUTTI_TLS_AUTHORITY", "FILE", "the authority in PEM that signed the certificates of all ranks and launchers"},
  {g::security, "TUTTI_TLS_MODULE", "FILE", "module for TLS; default: libtutti_tls.so beside the program, in the lib beside its bin, or where tutti is installed"},

  {g::failure, "TUTTI_TIMEOUT", "600|SECONDS", "time limit of joining, and of every operation without one of its own"},
  {g::failure, "TUTTI_SILENCE_LIMIT", "3|SECONDS|off", "a host that is awaited, is asked and does not answer for so long counts as dead (from 0.5); hosts answer while their ranks compute or are stopped"},
  {g::failure, "TUTTI_SUSPECT_GRACE", "30|SECONDS|off", "a rank that is awaited and is stopped (SIGSTOP, a debugger) for so long counts as dead; on other hosts if tutti-run started it"},

  {g::speed, "TUTTI_LOOP", "auto|io_uring|epoll", "forces an event loop"},
  {g::speed, "TUTTI_SPIN_US", "50|MICROSECONDS", "how long an idle rank polls before it sleeps; default: 50 with a core per rank"},
  {g::speed, "TUTTI_SLICE_US", "100|MICROSECONDS", "time slice requested from the scheduler for the loop thread of tutti::run; 0: the system's (Linux 6.12)"},
  {g::speed, "TUTTI_ALGORITHMS", "KIND=NAME[,...]", "forces algorithms of collectives, such as all_reduce=ring,broadcast=binomial; the same on all ranks"},
  {g::speed, "TUTTI_FLAT_RANKS", "16|RANKS", "up to so many ranks of one host (2 to 32) have one segment for collectives, more have two levels; the same on all ranks"},
  {g::speed, "TUTTI_TUNING", "FILE", "rules that choose algorithms, tried before the built-in ones; the same on all ranks; ./run tune writes them for one host, tutti-perf tune for the ranks it runs on"},

  {g::records, "TUTTI_LOG", "warning|error|info|debug", "least severity of messages on standard error"},
  {g::records, "TUTTI_TRACE", "FILE", "as tutti-run --trace FILE, also under other starters"},
  {g::records, "TUTTI_TRACE_MIB", "1024|MIB", "largest size of a trace (1 to 1048576)"},
  {g::records, "TUTTI_FLIGHT_OPERATIONS", "1024|COUNT", "operations of each rank that the flight recorder keeps (64 to 1048576)"},
  {g::records, "TUTTI_STALL_WARNING_MS", "100|MILLISECONDS", "warns of computations on the loop thread that take so long while operations wait; 0: never"},
  {g::records, "TUTTI_CHECK_BUFFERS", "off|warn|error", "finds operations in flight on overlapping buffers of which one writes; builds without NDEBUG warn"},
  {g::records, "TUTTI_SIM_SEED", "1|NUMBER", "seed of a program in the simulator"},

  {g::devices, "TUTTI_DEVICE", "auto|cuda|level_zero|emulated", "kind of device that tutti::gpu::open opens"},
  {g::devices, "TUTTI_GPU_BACKEND", "auto|nccl|oneccl|one_device|staged", "forces a backend of collectives on device memory; the same on all ranks"},
  {g::devices, "TUTTI_GPU_CHUNK", "2097152|BYTES", "size of staged chunks; the same on all ranks"},
  {g::devices, "TUTTI_CUDA_LIBRARY", "libcuda.so.1|FILE", "the CUDA driver library"},
  {g::devices, "TUTTI_CUDA_KERNELS", "FILE", "a fatbin or PTX in place of the embedded kernels"},
  {g::devices, "TUTTI_NCCL_LIBRARY", "FILE", "the NCCL library, in place of the libnccl.so.2 that is loaded or found"},
  {g::devices, "TUTTI_ONECCL_LIBRARY", "FILE", "the oneCCL library, in place of the libccl.so.2 that is loaded or found"},
  {g::devices, "TUTTI_LEVEL_ZERO_LIBRARY", "libze_loader.so.1|FILE", "the Level Zero loader"},
  {g::devices, "CUDA_VISIBLE_DEVICES", "", "samples of the GPU are those of the devices named here"},
  {g::devices, "CUDA_DEVICE_MAX_CONNECTIONS", "32", "of CUDA: its hardware queues; tutti sets it where it is not set, lower where more than three ranks share a GPU"},
  {g::devices, "NCCL_SET_STACK_SIZE", "1", "of NCCL: room for the stack of all its kernels; tutti sets it where it is not set"},
  {g::devices, "NCCL_HOSTID", "", "different values let NCCL serve ranks that share a GPU"},
  {g::devices, "NCCL_MULTI_RANK_GPU_ENABLE", "", "lets NCCL serve ranks that share a GPU"},
  {g::devices, "ZE_ENABLE_LOADER_INTERCEPT", "", "of Level Zero's loader: its handles are wrapped then"},
  {g::devices, "CCL_ATL_TRANSPORT", "ofi", "of oneCCL; tutti sets it where it is not set"},
  {g::devices, "CCL_PLUGIN", "", "of oneCCL; tutti sets it where it is not set"},
  {g::devices, "CCL_PROCESS_LAUNCHER", "torchrun|none", "of oneCCL; tutti sets it where it is not set"},
  {g::devices, "CCL_YIELD", "", "of oneCCL; tutti sets it where there are fewer cores than threads"},

  {g::starters, "OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_LOCAL_RANK, OMPI_COMM_WORLD_NODE_RANK", "", "Open MPI: the place of this rank"},
  {g::starters, "OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_SIZE", "", "Open MPI: a number of ranks"},
  {g::starters, "PMIX_NAMESPACE, OMPI_MCA_orte_hnp_uri, OMPI_MCA_ess_base_jobid", "", "Open MPI: the name of the job"},
  {g::starters, "PMI_RANK, MPI_LOCALRANKID", "", "MPICH, Intel MPI: the place of this rank"},
  {g::starters, "PMI_SIZE, MPI_LOCALNRANKS", "", "MPICH, Intel MPI: a number of ranks"},
  {g::starters, "PMI_JOBID, PMI_PORT, PMI_FD, HYDI_CONTROL_FD", "", "MPICH, Intel MPI: the name of the job, or the socket of its proxy"},
  {g::starters, "TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT, TORCHELASTIC_USE_AGENT_STORE", "", "torchrun: identifies the job; its own store may use MASTER_PORT"},
  {g::starters, "ROLE_RANK, ROLE_WORLD_SIZE", "", "torchrun: tutti-run does not pass it on to its ranks"},
  {g::starters, "PET_NPROC_PER_NODE, PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR, PET_MASTER_PORT", "", "torchrun, Kubeflow Trainer: options of tutti-run"},
  {g::starters, "LWS_GROUP_SIZE, LWS_WORKER_INDEX, LWS_LEADER_ADDRESS", "", "LeaderWorkerSet: options of tutti-run"},
  {g::starters, "JOB_COMPLETION_INDEX", "", "Indexed Job, JobSet: --node-rank of tutti-run"},
  {g::starters, "SLURM_PROCID, SLURM_LOCALID", "", "Slurm: the place of this rank"},
  {g::starters, "SLURM_NTASKS, SLURM_NPROCS, SLURM_STEP_NUM_TASKS", "", "Slurm: a number of ranks"},
  {g::starters, "SLURM_NODEID, SLURM_NNODES, SLURM_JOB_NUM_NODES, SLURM_STEP_NUM_NODES, SLURM_STEP_NODELIST, SLURM_JOB_NODELIST, SLURM_NODELIST", "", "Slurm: the nodes of the step; options of tutti-run"},
  {g::starters, "SLURM_STEP_TASKS_PER_NODE, SLURM_TASKS_PER_NODE", "", "Slurm: the ranks of each host"},
  {g::starters, "SLURM_JOB_ID, SLURM_STEP_ID, SLURM_STEPID, SLURM_RESTART_COUNT", "", "Slurm: the name of the job"},
  {g::starters, "XDG_RUNTIME_DIR", "", "folder of this user, where ranks of one host meet without MASTER_ADDR; without it /tmp/tutti-<uid>"},

  {g::internal, "TUTTI_STORE_FD", "", "socket on which rank 0 listens for the others"},
  {g::internal, "TUTTI_STORE_FROM", "", "where rank 0 asks the launcher for that socket, if it was closed on the way or for a second world"},
  {g::internal, "TUTTI_STORE_PORT", "", "A:B, the ranks meet at port B while MASTER_PORT is A"},
  {g::internal, "TUTTI_STORE_LISTENS", "", "port of TUTTI_STORE_FD"},
  {g::internal, "TUTTI_STORE_RELAY", "", "port of the launcher of this node, which asks the store for its ranks"},
  {g::internal, "TUTTI_FLIGHT", "", "shared memory of the flight recorder"},
  {g::internal, "TUTTI_TTY", "", "1: the launcher's output is a terminal"},
  {g::internal, "COLUMNS", "", "width of that terminal"},
};
// clang-format on

}  // namespace

std::optional<std::string> env_string(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return std::string(text);
}

std::optional<std::int64_t> env_integer(const char* name, std::int64_t low, std::int64_t high) {
  const auto text = env_string(name);
  if (!text) return std::nullopt;
  const auto value = to_number<std::int64_t>(*text);
  if (!value || *value < low || *value > high)
    throw_error(errc::invalid_argument,
                "the environment variable {}='{}' is not an integer between {} and {}: correct it or "
                "unset it",
                name, *text, low, high);
  return value;
}

std::span<const variable> variables() noexcept { return table; }

}  // namespace tutti::base
