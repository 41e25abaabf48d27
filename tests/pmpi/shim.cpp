// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// MPI's blocking collectives, carried out by espalier/comm.hpp in programs that know nothing of it:
//
//     mpirun -n 4 -x LD_PRELOAD=libespalier_pmpi.so program
//
// Served: Bcast, Reduce, Allreduce, Allgather(v), Reduce_scatter(_block), Gather, Scatter, Alltoall on
// intracommunicators of two ranks and more. Goes on to the library: everything else, reductions of the user's types
// with gaps, and MPI's own operations on types that the standard does not give them for. What fails is told to the
// communicator's error handler, and in words on stderr. Whether a call is served depends only on what is the same on
// all ranks: type maps, displacements and the place of the root's data may differ. ESPALIER_METHOD: auto (default),
// trees, low_latency, shared, single_copy. ESPALIER_TOPOLOGY: a file for the ranks of MPI_COMM_WORLD, or `probe`;
// without it all links count as equal. ESPALIER_SHIM_REPORT=1: rank 0 says at the end how many calls were served and
// how many went on.

#include <espalier/comm.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace espalier::comm;

long served = 0;
long passed_on = 0;
/// The library's own collectives are called by ours too: those are not ours to serve again.
thread_local int nested = 0;

struct inside {
  inside() { ++nested; }
  ~inside() { --nested; }
  inside(const inside&) = delete;
  inside& operator=(const inside&) = delete;
};

std::string setting(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

/// The network of MPI_COMM_WORLD. Collective over it only when probing, so that is done in MPI_Init.
network& world_network() {
  static network net;
  return net;
}

void find_world_network() {
  const inside here;
  int ranks = 1;
  PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::string source = setting("ESPALIER_TOPOLOGY");
  if (source == "probe") {
    world_network() = network_of(probe(MPI_COMM_WORLD));
  } else if (!source.empty()) {
    world_network() = network_of(load_topology(source));
  } else {
    const auto n = static_cast<std::size_t>(ranks);
    std::vector<std::vector<double>> equal(n, std::vector<double>(n, 1));
    for (std::size_t r = 0; r < n; ++r) equal[r][r] = 0;
    world_network() = network_of(from_adjacency(equal));
  }
  if (world_network().ranks != ranks) {
    std::fprintf(stderr, "espalier: %s has %d ranks, MPI_COMM_WORLD %d\n", source.c_str(), world_network().ranks,
                 ranks);
    PMPI_Abort(MPI_COMM_WORLD, 1);
  }
}

collectives_options chosen_options() {
  collectives_options options;
  const std::string way = setting("ESPALIER_METHOD");
  if (way == "trees") options.forced = choice{method::trees, 0};
  if (way == "shared") options.forced = choice{method::shared, 0};
  if (way == "single_copy") options.forced = choice{method::single_copy, 0};
  if (way == "low_latency") options.forced = choice{method::low_latency, 0};
  return options;
}

int forget(MPI_Comm, int, void* value, void*) {
  const inside here;
  delete static_cast<collectives*>(value);
  return MPI_SUCCESS;
}

int key_of_ours() {
  static const int key = [] {
    int made = 0;
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &forget, &made, nullptr);
    return made;
  }();
  return key;
}

/// The collectives of a communicator, made when it is first used; null where the library serves.
collectives* of(MPI_Comm communicator) {
  int between = 0;
  if (PMPI_Comm_test_inter(communicator, &between) != MPI_SUCCESS || between != 0) return nullptr;
  void* found = nullptr;
  int known = 0;
  PMPI_Comm_get_attr(communicator, key_of_ours(), static_cast<void*>(&found), &known);
  if (known != 0) return static_cast<collectives*>(found);
  MPI_Group mine{};
  MPI_Group world{};
  int size = 0;
  PMPI_Comm_group(communicator, &mine);
  PMPI_Comm_group(MPI_COMM_WORLD, &world);
  PMPI_Comm_size(communicator, &size);
  std::vector<int> own(static_cast<std::size_t>(size));
  std::iota(own.begin(), own.end(), 0);
  std::vector<int> members(own.size());
  PMPI_Group_translate_ranks(mine, size, own.data(), world, members.data());
  PMPI_Group_free(&mine);
  PMPI_Group_free(&world);
  for (const int member : members) {
    if (member == MPI_UNDEFINED) return nullptr;  // spawned or connected later
  }
  auto* made = new collectives(communicator, restricted(world_network(), members), chosen_options());
  PMPI_Comm_set_attr(communicator, key_of_ours(), made);
  return made;
}

/// True if elements of the type follow one another without gaps.
bool is_dense(MPI_Datatype type) {
  if (type == MPI_DATATYPE_NULL) return false;
  int size = 0;
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  MPI_Aint true_lower = 0;
  MPI_Aint true_extent = 0;
  if (PMPI_Type_size(type, &size) != MPI_SUCCESS) return false;
  PMPI_Type_get_extent(type, &lower, &extent);
  PMPI_Type_get_true_extent(type, &true_lower, &true_extent);
  return size > 0 && lower == 0 && true_lower == 0 && extent == size && true_extent == size;
}

std::int64_t bytes_in(MPI_Datatype type) {
  int size = 0;
  if (type != MPI_DATATYPE_NULL) PMPI_Type_size(type, &size);
  return size;
}
std::int64_t extent_of(MPI_Datatype type) {
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  PMPI_Type_get_extent(type, &lower, &extent);
  return extent;
}

/// The kinds of elements on which MPI's own operations can be used (MPI 3.1, section 5.9.2).
enum class element_kind { integer, floating, logical, complex, bytes, pair, other };

element_kind kind_of(MPI_Datatype type) {
  using enum element_kind;
  static const std::vector<std::pair<MPI_Datatype, element_kind>> known{{MPI_DOUBLE, floating},
                                                                        {MPI_FLOAT, floating},
                                                                        {MPI_LONG_DOUBLE, floating},
                                                                        {MPI_INT, integer},
                                                                        {MPI_LONG, integer},
                                                                        {MPI_SHORT, integer},
                                                                        {MPI_LONG_LONG, integer},
                                                                        {MPI_SIGNED_CHAR, integer},
                                                                        {MPI_UNSIGNED_CHAR, integer},
                                                                        {MPI_UNSIGNED_SHORT, integer},
                                                                        {MPI_UNSIGNED, integer},
                                                                        {MPI_UNSIGNED_LONG, integer},
                                                                        {MPI_UNSIGNED_LONG_LONG, integer},
                                                                        {MPI_INT8_T, integer},
                                                                        {MPI_INT16_T, integer},
                                                                        {MPI_INT32_T, integer},
                                                                        {MPI_INT64_T, integer},
                                                                        {MPI_UINT8_T, integer},
                                                                        {MPI_UINT16_T, integer},
                                                                        {MPI_UINT32_T, integer},
                                                                        {MPI_UINT64_T, integer},
                                                                        {MPI_AINT, integer},
                                                                        {MPI_OFFSET, integer},
                                                                        {MPI_COUNT, integer},
                                                                        {MPI_C_BOOL, logical},
                                                                        {MPI_CXX_BOOL, logical},
                                                                        {MPI_C_FLOAT_COMPLEX, complex},
                                                                        {MPI_C_DOUBLE_COMPLEX, complex},
                                                                        {MPI_C_LONG_DOUBLE_COMPLEX, complex},
                                                                        {MPI_CXX_FLOAT_COMPLEX, complex},
                                                                        {MPI_CXX_DOUBLE_COMPLEX, complex},
                                                                        {MPI_CXX_LONG_DOUBLE_COMPLEX, complex},
                                                                        {MPI_BYTE, bytes},
                                                                        {MPI_2INT, pair},
                                                                        {MPI_FLOAT_INT, pair},
                                                                        {MPI_DOUBLE_INT, pair},
                                                                        {MPI_LONG_INT, pair},
                                                                        {MPI_SHORT_INT, pair},
                                                                        {MPI_LONG_DOUBLE_INT, pair},
                                                                        {MPI_INTEGER, integer},
                                                                        {MPI_REAL, floating},
                                                                        {MPI_DOUBLE_PRECISION, floating},
                                                                        {MPI_LOGICAL, logical},
                                                                        {MPI_COMPLEX, complex}};
  for (const auto& [handle, kind] : known) {
    if (handle == type) return kind;
  }
  return other;
}

/// Whether the reduction is served: the user's operations on elements without gaps or MPI's pairs, whose gaps hold
/// nothing; MPI's operations on the types that they are made for.
bool is_reducible(MPI_Datatype type, MPI_Op op) {
  if (type == MPI_DATATYPE_NULL || op == MPI_OP_NULL) return false;
  const element_kind kind = kind_of(type);
  const auto is_any_of = [op](auto... known) { return ((op == known) || ...); };
  if (is_any_of(MPI_SUM, MPI_PROD)) {
    return kind == element_kind::integer || kind == element_kind::floating || kind == element_kind::complex;
  }
  if (is_any_of(MPI_MAX, MPI_MIN)) return kind == element_kind::integer || kind == element_kind::floating;
  if (is_any_of(MPI_LAND, MPI_LOR, MPI_LXOR)) return kind == element_kind::integer || kind == element_kind::logical;
  if (is_any_of(MPI_BAND, MPI_BOR, MPI_BXOR)) return kind == element_kind::integer || kind == element_kind::bytes;
  if (is_any_of(MPI_MAXLOC, MPI_MINLOC)) return kind == element_kind::pair;
  if (detail::is_predefined(op)) return false;
  return is_dense(type) || kind == element_kind::pair;
}

int size_of(MPI_Comm communicator) {
  int size = 0;
  int between = 0;
  if (communicator == MPI_COMM_NULL) return 0;
  PMPI_Comm_test_inter(communicator, &between);
  if (between == 0) PMPI_Comm_size(communicator, &size);
  return size;
}
int rank_of(MPI_Comm communicator) {
  int rank = 0;
  PMPI_Comm_rank(communicator, &rank);
  return rank;
}
/// Reports an error to the program: its handler decides whether it goes on.
int report(MPI_Comm communicator, collective what, const char* text, int code) {
  std::fprintf(stderr, "espalier: %s: %s\n", name_of(what), text);
  PMPI_Comm_call_errhandler(communicator, code);
  return code;
}

/// Runs a call on ours, and returns its MPI error code; none where the library has to.
std::optional<int> serve(MPI_Comm communicator, const collective_call& call, const void* input, void* output,
                         const element& what) {
  if (nested > 0) return std::nullopt;
  const inside here;
  try {
    collectives* const ours = of(communicator);
    if (ours == nullptr || call.ranks != ours->size()) {
      ++passed_on;
      return std::nullopt;
    }
    ours->run(call, input, output, what);
    ++served;
    return MPI_SUCCESS;
  } catch (const std::exception& error) { return report(communicator, call.kind, error.what(), MPI_ERR_OTHER); }
}

/// A rank must send itself as much as it receives, or gets an error before anything moves: no other rank sees it.
std::optional<int> refused(MPI_Comm communicator, collective what, std::int64_t sent, std::int64_t received) {
  if (sent == received) return std::nullopt;
  const std::string text = "rank " + std::to_string(rank_of(communicator)) + " sends " + std::to_string(sent) +
                           " bytes to itself and receives " + std::to_string(received);
  return report(communicator, what, text.c_str(), MPI_ERR_TRUNCATE);
}

/// The bytes of `count` elements one after another: the caller's own memory where they lie so, else a copy.
class packed {
 public:
  packed(const void* from, std::int64_t count, MPI_Datatype type, MPI_Comm communicator)
      : packed(count, type, communicator, const_cast<void*>(from)) {  // NOLINT: written by `unpack` only
    if (bytes_ == 0 || copy_.empty()) return;
    int at = 0;
    PMPI_Pack(from, static_cast<int>(count), type, copy_.data(), static_cast<int>(bytes_), &at, communicator);
  }
  /// Room for them.
  packed(std::int64_t count, MPI_Datatype type, MPI_Comm communicator, void* place)
      : place_(place), count_(count), type_(type), communicator_(communicator), bytes_(count * bytes_in(type)) {
    if (bytes_ > 0 && !is_dense(type)) copy_.resize(static_cast<std::size_t>(bytes_));
  }

  [[nodiscard]] void* data() { return copy_.empty() ? place_ : copy_.data(); }
  /// Writes them to where the caller wants them.
  void unpack() const {
    if (copy_.empty()) return;
    int at = 0;
    PMPI_Unpack(copy_.data(), static_cast<int>(bytes_), &at, place_, static_cast<int>(count_), type_, communicator_);
  }

 private:
  void* place_;
  std::int64_t count_;
  MPI_Datatype type_;
  MPI_Comm communicator_;
  std::int64_t bytes_;
  std::vector<char> copy_;
};

/// False for wrong arguments, which are left to the library.
bool is_sane(MPI_Comm communicator, std::int64_t count, int root = 0) {
  return nested == 0 && communicator != MPI_COMM_NULL && size_of(communicator) > 1 && count >= 0 && root >= 0 &&
         root < size_of(communicator);
}

std::vector<std::int64_t> widened(const int* counts, int n) { return {counts, counts + n}; }

template <class T> T* behind(T* data, std::int64_t bytes) {
  using byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return static_cast<byte*>(data) + bytes;
}

/// `counts`: of every rank. In place, programs rely on what follows the own block staying as it was: the schedules work
/// on a copy.
std::optional<int> serve_reduce_scatter(std::vector<std::int64_t> counts, const void* input, void* output,
                                        MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  if (!is_reducible(type, op)) return std::nullopt;
  const mpi_element one(type, op);
  collective_call call = uniform_call(collective::reduce_scatter, size_of(comm), 0);
  call.counts = std::move(counts);
  std::vector<char> copy;
  if (input == MPI_IN_PLACE) {
    const auto* from = static_cast<const char*>(output);
    copy.assign(from, from + total_elements(call) * extent_of(type));
  }
  return serve(comm, call, input == MPI_IN_PLACE ? copy.data() : input, output, one.get());
}

}  // namespace

extern "C" {

int MPI_Init(int* argc, char*** argv) {
  const int code = PMPI_Init(argc, argv);
  if (code == MPI_SUCCESS) find_world_network();
  return code;
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const int code = PMPI_Init_thread(argc, argv, required, provided);
  if (code == MPI_SUCCESS) find_world_network();
  return code;
}

int MPI_Finalize() {
  if (setting("ESPALIER_SHIM_REPORT") == "1" && rank_of(MPI_COMM_WORLD) == 0) {
    std::fprintf(stderr, "espalier: %ld collectives served, %ld passed on\n", served, passed_on);
  }
  ++nested;
  return PMPI_Finalize();
}

int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  if (is_sane(comm, count, root)) {
    packed bytes = rank_of(comm) == root ? packed(data, count, type, comm) : packed(count, type, comm, data);
    collective_call call = uniform_call(collective::broadcast, size_of(comm), count * bytes_in(type), root);
    call.in_place = true;
    if (const auto code = serve(comm, call, nullptr, bytes.data(), bytes_of_size(1))) {
      if (*code == MPI_SUCCESS && rank_of(comm) != root) bytes.unpack();
      return *code;
    }
  }
  return PMPI_Bcast(data, count, type, root, comm);
}

int MPI_Reduce(const void* input, void* output, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
  // Where only the root can see what is wrong, it has to say so before it sends anything: the library does.
  const bool overwrites = input == output && size_of(comm) > 0 && rank_of(comm) == root;
  if (is_sane(comm, count, root) && is_reducible(type, op) && (!overwrites || count == 0)) {
    const mpi_element one(type, op);
    const collective_call call = uniform_call(collective::reduce, size_of(comm), count, root);
    std::vector<char> copy;
    const void* mine = input;
    if (rank_of(comm) == root && input == MPI_IN_PLACE) {
      const auto* from = static_cast<const char*>(output);
      copy.assign(from, from + count * extent_of(type));
      mine = copy.data();
    }
    if (const auto code = serve(comm, call, mine, output, one.get())) return *code;
  }
  return PMPI_Reduce(input, output, count, type, op, root, comm);
}

int MPI_Allreduce(const void* input, void* output, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  if (is_sane(comm, count) && is_reducible(type, op)) {
    const mpi_element one(type, op);
    collective_call call = uniform_call(collective::all_reduce, size_of(comm), count);
    call.in_place = input == MPI_IN_PLACE;
    if (const auto code = serve(comm, call, call.in_place ? nullptr : input, output, one.get())) return *code;
  }
  return PMPI_Allreduce(input, output, count, type, op, comm);
}

int MPI_Allgather(const void* input, int count, MPI_Datatype type, void* output, int out_count, MPI_Datatype out_type,
                  MPI_Comm comm) {
  if (is_sane(comm, out_count)) {
    const bool in_place = input == MPI_IN_PLACE;
    const int size = size_of(comm);
    const std::int64_t block = out_count * bytes_in(out_type);
    if (!in_place) {
      if (const auto code = refused(comm, collective::all_gather, count * bytes_in(type), block)) return *code;
    }
    collective_call call = uniform_call(collective::all_gather, size, block);
    call.in_place = in_place;
    packed mine(in_place ? nullptr : input, in_place ? 0 : count, in_place ? out_type : type, comm);
    const std::int64_t all = std::int64_t{size} * out_count;
    packed whole = in_place ? packed(output, all, out_type, comm) : packed(all, out_type, comm, output);
    if (const auto code = serve(comm, call, in_place ? nullptr : mine.data(), whole.data(), bytes_of_size(1))) {
      if (*code == MPI_SUCCESS) whole.unpack();
      return *code;
    }
  }
  return PMPI_Allgather(input, count, type, output, out_count, out_type, comm);
}

int MPI_Allgatherv(const void* input, int count, MPI_Datatype type, void* output, const int* counts, const int* offsets,
                   MPI_Datatype out_type, MPI_Comm comm) {
  if (is_sane(comm, 0)) {
    const bool in_place = input == MPI_IN_PLACE;
    const int size = size_of(comm);
    const int rank = rank_of(comm);
    const std::int64_t extent = extent_of(out_type);
    collective_call call = uniform_call(collective::all_gather, size, 0);
    call.counts = widened(counts, size);
    for (std::int64_t& block : call.counts) block *= bytes_in(out_type);
    const std::int64_t block = call.counts[static_cast<std::size_t>(rank)];
    if (!in_place) {
      if (const auto code = refused(comm, collective::all_gather, count * bytes_in(type), block)) return *code;
    }
    const void* const own = in_place ? behind(output, offsets[rank] * extent) : input;
    packed mine(own, in_place ? counts[rank] : count, in_place ? out_type : type, comm);
    std::vector<char> whole(static_cast<std::size_t>(std::max<std::int64_t>(1, total_elements(call))));
    if (const auto code = serve(comm, call, mine.data(), whole.data(), bytes_of_size(1))) {
      if (*code != MPI_SUCCESS) return *code;
      int at = 0;
      for (int k = 0; k < size; ++k) {
        if (call.counts[static_cast<std::size_t>(k)] == 0) continue;
        PMPI_Unpack(whole.data(), static_cast<int>(whole.size()), &at, behind(output, offsets[k] * extent), counts[k],
                    out_type, comm);
      }
      return MPI_SUCCESS;
    }
  }
  return PMPI_Allgatherv(input, count, type, output, counts, offsets, out_type, comm);
}

int MPI_Reduce_scatter(const void* input, void* output, const int* counts, MPI_Datatype type, MPI_Op op,
                       MPI_Comm comm) {
  if (is_sane(comm, 0)) {
    if (const auto code = serve_reduce_scatter(widened(counts, size_of(comm)), input, output, type, op, comm)) {
      return *code;
    }
  }
  return PMPI_Reduce_scatter(input, output, counts, type, op, comm);
}

int MPI_Reduce_scatter_block(const void* input, void* output, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  if (is_sane(comm, count)) {
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(size_of(comm)), count);
    if (const auto code = serve_reduce_scatter(counts, input, output, type, op, comm)) return *code;
  }
  return PMPI_Reduce_scatter_block(input, output, count, type, op, comm);
}

int MPI_Gather(const void* input, int count, MPI_Datatype type, void* output, int out_count, MPI_Datatype out_type,
               int root, MPI_Comm comm) {
  const bool at_root = size_of(comm) > 0 && rank_of(comm) == root;
  const bool in_place = at_root && input == MPI_IN_PLACE;
  const int own_count = in_place ? out_count : count;
  const MPI_Datatype own_type = in_place ? out_type : type;
  if (is_sane(comm, own_count, root)) {
    const std::int64_t block = own_count * bytes_in(own_type);
    if (at_root && !in_place) {
      if (const auto code = refused(comm, collective::gather, block, out_count * bytes_in(out_type))) return *code;
    }
    const collective_call call = uniform_call(collective::gather, size_of(comm), block, root);
    // The root's own block is read while the whole is written.
    std::vector<char> copy(in_place ? static_cast<std::size_t>(block) : 0);
    packed mine(in_place ? behind(output, root * own_count * extent_of(out_type)) : input, own_count, own_type, comm);
    if (in_place && block > 0) std::memcpy(copy.data(), mine.data(), copy.size());
    packed whole(at_root ? std::int64_t{size_of(comm)} * out_count : 0, at_root ? out_type : MPI_BYTE, comm, output);
    if (const auto code = serve(comm, call, in_place ? copy.data() : mine.data(), whole.data(), bytes_of_size(1))) {
      if (*code == MPI_SUCCESS) whole.unpack();
      return *code;
    }
  }
  return PMPI_Gather(input, count, type, output, out_count, out_type, root, comm);
}

int MPI_Scatter(const void* input, int count, MPI_Datatype type, void* output, int out_count, MPI_Datatype out_type,
                int root, MPI_Comm comm) {
  const bool at_root = size_of(comm) > 0 && rank_of(comm) == root;
  const bool in_place = at_root && output == MPI_IN_PLACE;
  const int own_count = in_place ? count : out_count;
  const MPI_Datatype own_type = in_place ? type : out_type;
  if (is_sane(comm, own_count, root)) {
    const std::int64_t block = own_count * bytes_in(own_type);
    if (at_root && !in_place) {
      if (const auto code = refused(comm, collective::scatter, count * bytes_in(type), block)) return *code;
    }
    const collective_call call = uniform_call(collective::scatter, size_of(comm), block, root);
    std::vector<char> unwanted(in_place ? static_cast<std::size_t>(block) : 0);
    packed whole(input, at_root ? std::int64_t{size_of(comm)} * count : 0, at_root ? type : MPI_BYTE, comm);
    packed mine(in_place ? 0 : own_count, own_type, comm, output);
    if (const auto code = serve(comm, call, whole.data(), in_place ? unwanted.data() : mine.data(), bytes_of_size(1))) {
      if (*code == MPI_SUCCESS) mine.unpack();
      return *code;
    }
  }
  return PMPI_Scatter(input, count, type, output, out_count, out_type, root, comm);
}

int MPI_Alltoall(const void* input, int count, MPI_Datatype type, void* output, int out_count, MPI_Datatype out_type,
                 MPI_Comm comm) {
  if (is_sane(comm, out_count)) {
    const bool in_place = input == MPI_IN_PLACE;
    const std::int64_t blocks = size_of(comm);
    const std::int64_t block = out_count * bytes_in(out_type);
    if (!in_place) {
      if (const auto code = refused(comm, collective::all_to_all, count * bytes_in(type), block)) return *code;
    }
    collective_call call = uniform_call(collective::all_to_all, size_of(comm), block);
    call.in_place = in_place;
    packed mine(in_place ? nullptr : input, in_place ? 0 : blocks * count, in_place ? out_type : type, comm);
    packed whole = in_place ? packed(output, blocks * out_count, out_type, comm)
                            : packed(blocks * out_count, out_type, comm, output);
    if (const auto code = serve(comm, call, in_place ? nullptr : mine.data(), whole.data(), bytes_of_size(1))) {
      if (*code == MPI_SUCCESS) whole.unpack();
      return *code;
    }
  }
  return PMPI_Alltoall(input, count, type, output, out_count, out_type, comm);
}

}  // extern "C"
