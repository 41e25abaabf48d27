// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/object_vector.hpp>
#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/comm/communicator.hpp>
#include <espalier/tensor/core/partition/boxes.hpp>
#include <espalier/tensor/run/execute/buffer.hpp>
#include <espalier/tensor/run/execute/causal.hpp>
#include <espalier/tensor/run/execute/chain.hpp>
#include <espalier/tensor/run/execute/finite_check.hpp>
#include <espalier/tensor/run/execute/memory_steps.hpp>
#include <espalier/tensor/run/execute/message_tables.hpp>
#include <espalier/tensor/run/execute/owner_exchange.hpp>
#include <espalier/tensor/run/execute/steps.hpp>

#include <cstring>
#include <utility>

namespace espalier::detail {

/// The kernels of a compiled program: the functions that its tables hold.
class compiled_kernels {
 public:
  explicit compiled_kernels(const program_tables& t)
      : functions_(t.kernel_functions), blocks_(t.block_functions), loops_(t.loop_functions) {}

  void run(int launch, const kernels::kernel_call& call) const { functions_[launch](call); }
  using block_function = kernels::block_function;
  [[nodiscard]] block_function block(int step) const { return blocks_[step]; }
  /// Null: the launch's chain is no loop.
  [[nodiscard]] kernels::loop_function loop(int launch) const { return loops_ == nullptr ? nullptr : loops_[launch]; }

 private:
  const kernel_function* functions_;
  const kernels::block_function* blocks_;
  const kernels::loop_function* loops_;
};

/// One device at work: its memory, its part of every collective, and the walk over the steps, one launch after the
/// other; `item_executor` also takes launches part by part. Everything is allocated when it is made; a run allocates
/// nothing.
///
/// `Kernels` computes what a launch or a step of a fused chain computes; all else is the same for every program,
/// whether it was compiled or made at run time.
template <class Communicator, class Kernels = compiled_kernels> class device_executor {
 public:
  device_executor(const program_tables& t, int device, Communicator& comm)
      : device_executor(t, device, comm, Kernels(t)) {}
  device_executor(const program_tables& t, int device, Communicator& comm, Kernels kernels)
      : t_(t),
        kernels_(std::move(kernels)),
        device_(device),
        comm_(comm),
        steps_(t_),
        causal_(t_),
        finite_(t_, device),
        chains_(t_, causal_, kernels_, finite_),
        arena_(t.arena_bytes),
        scratch_(aligned(t.kernel_scratch_bytes) + chains_.scratch_bytes()),
        iteration_(static_cast<std::size_t>(t.code.size), 0),
        limit_(static_cast<std::size_t>(t.code.size), 0),
        tails_(static_cast<std::size_t>(t.launch_count)),
        boxes_at_(static_cast<std::size_t>(t.code.size), -1),
        displaced_by_(static_cast<std::size_t>(t.code.size), 0),
        moves_(static_cast<std::size_t>(t.code.size)),
        message_of_(static_cast<std::size_t>(t.code.size), -1),
        contexts_(static_cast<std::size_t>(t.code.size)),
        further_(static_cast<std::size_t>(t.code.further_count)),
        first_result_(static_cast<std::size_t>(t.code.size), -1),
        arguments_(static_cast<std::size_t>(t.argument_count)),
        results_(static_cast<std::size_t>(t.result_count)) {
    give_places();
    find_tails();
    for (int id = 0; id < t.code.size; ++id) {
      if (structure_of(t.code[id]) == structure::region_begin) {
        limit_[static_cast<std::size_t>(id)] = attributes_of<region_attributes>(t.code[id]).iterations;
        iteration(id) = first_iteration(id);
      }
      prepare(id);
    }
    std::int64_t message_bytes = 0;
    for (const message_table& all : messages_) {
      const std::int64_t element = size_of(all.moves.type);
      message_bytes = larger_of(message_bytes, aligned(all.sent * element) + all.received * element);
    }
    message_memory_ = shared_buffer(message_bytes);
  }
  device_executor(const device_executor&) = delete;
  device_executor& operator=(const device_executor&) = delete;
  virtual ~device_executor() = default;

  void set_argument(int index, void* data) { arguments_[static_cast<std::size_t>(index)] = data; }
  void set_result(int index, void* data) { results_[static_cast<std::size_t>(index)] = data; }

  /// Whether the program's looks (`print`, `check_finite`) look: not where it runs again on what it has run on.
  void set_looks(bool on) { looks_ = on; }

  void run() {
    start();
    while (next() != nullptr) step();
  }

  // --- step by step: for a caller that walks several devices at once, and carries out their collectives itself -------

  void start() {
    position_ = 0;
    chains_.forget_rows();
    if (finite_.is_on()) check_arguments();
  }
  /// The next step, or null at the end.
  [[nodiscard]] const device_step* next() const { return position_ < steps_.size() ? &steps_[position_] : nullptr; }
  /// Executes it, and possibly those that follow up to some launch.
  virtual void step() { position_ = run_with_tail(position_) ? position_ + 2 : execute(position_); }
  /// Goes on after a collective that the caller has carried out.
  void pass() { ++position_; }
  [[nodiscard]] const comm::transfer& moves_of(int id) const { return moves_[static_cast<std::size_t>(id)]; }
  /// The messages of a collective, null where its boxes go from buffer to buffer; what is sent is packed before, and
  /// what was received is unpacked afterwards.
  [[nodiscard]] const message_table* messages_of(int id) const {
    const int at = message_of_[static_cast<std::size_t>(id)];
    return at < 0 ? nullptr : &messages_[static_cast<std::size_t>(at)];
  }
  /// The moves of an exchange whose owner is known when it runs; null for all others.
  [[nodiscard]] const owner_exchange* owner_exchange_of(int id) const {
    const int at = owner_at_.empty() ? -1 : owner_at_[static_cast<std::size_t>(id)];
    return at < 0 ? nullptr : &owners_[static_cast<std::size_t>(at)];
  }
  [[nodiscard]] char* sent_memory() const { return static_cast<char*>(message_memory_.data()); }
  /// An all_reduce works in place.
  [[nodiscard]] char* received_memory(const message_table& all) const {
    if (is_collective(t_.code[all.collectives.front().id].op, collective::all_reduce)) return sent_memory();
    return sent_memory() + aligned(all.sent * size_of(all.moves.type));
  }
  void pack(const message_table& all) const {
    for (const travelling_collective& one : all.collectives) {
      const dtype type = one.boxes.type;
      const void* const source = address(t_.code[one.id].operand[0]);
      for (std::size_t k = 0; k < one.sent_at.size(); ++k) {
        if (one.sent_at[k] < 0) continue;
        comm::pack(type, sent_memory() + one.sent_at[k] * size_of(type), source, one.boxes.outgoing[k]);
      }
    }
  }
  void unpack(const message_table& all) const {
    const auto self = static_cast<std::size_t>(all.moves.self);
    for (const travelling_collective& one : all.collectives) {
      const dtype type = one.boxes.type;
      void* const target = address(one.id);
      for (std::size_t k = 0; k < one.received_at.size(); ++k) {
        if (one.received_at[k] < 0) continue;
        comm::unpack(type, target, received_memory(all) + one.received_at[k] * size_of(type), one.boxes.incoming[k]);
      }
      if (one.received_at[self] >= 0) continue;
      comm::copy_block(type, target, address(t_.code[one.id].operand[0]), one.boxes.incoming[self]);
    }
  }
  [[nodiscard]] char* arena() const { return static_cast<char*>(arena_.data()); }

  /// Returns the present address of a value; inside loops it depends on the iteration.
  [[nodiscard]] void* address(int id) const {
    const location& w = t_.where[id];
    char* base = nullptr;
    switch (w.space) {
      case memory_space::arena: base = arena(); break;
      case memory_space::argument: base = static_cast<char*>(arguments_[static_cast<std::size_t>(w.index)]); break;
      case memory_space::result: base = static_cast<char*>(results_[static_cast<std::size_t>(w.index)]); break;
      case memory_space::nowhere: return nullptr;
    }
    const auto where = [this](int other) -> const location& { return t_.where[other]; };
    const auto iteration = [this](int region) { return iteration_[static_cast<std::size_t>(region)]; };
    return base + w.offset + displaced_by_[static_cast<std::size_t>(id)] + moved_by(w, where, iteration);
  }

 protected:
  /// Executes step `n` and returns the one to go on with.
  int execute(int n) {
    const int next = execute_unchecked(n);
    if (finite_.is_on()) check_step(steps_[n]);
    return next;
  }

  /// Throws if a value that was looked at is not finite.
  void report_not_finite() const {
    if (finite_.first_bad() >= 0) finite_.report(site_of(finite_.first_bad()));
  }

  /// Null if the op is not positional.
  [[nodiscard]] const instruction_boxes* boxes(int id) const {
    const int at = boxes_at_[static_cast<std::size_t>(id)];
    return at < 0 ? nullptr : &boxes_[static_cast<std::size_t>(at)];
  }

  [[nodiscard]] char* chain_scratch() const {
    return static_cast<char*>(scratch_.data()) + aligned(t_.kernel_scratch_bytes);
  }

  const program_tables& t_;
  Kernels kernels_;
  int device_;
  Communicator& comm_;
  step_list steps_;
  int position_ = 0;
  bool looks_ = true;
  causal_finder causal_;
  finite_check finite_;
  chain_runner<Kernels> chains_;

 private:
  int execute_unchecked(int n) {
    const device_step& s = steps_[n];
    switch (s.kind) {
      case step_kind::kernel: call_kernel(s.launch, s.target); break;
      case step_kind::chain: run_chain(s.launch); break;
      case step_kind::copy: copy(address(s.target), address(s.source), s.target); break;
      case step_kind::save: copy(saved(s.target), address(s.source), s.target); break;
      case step_kind::copy_saved: copy(address(s.target), saved(s.target), s.target); break;
      case step_kind::clear: clear_bytes(address(s.target), bytes_of(t_.code[s.target])); break;
      case step_kind::add: add(s.target, s.source); break;
      case step_kind::stack: {
        const std::int64_t offset = iteration(s.region) * bytes_of(t_.code[s.source]);
        copy(static_cast<char*>(address(s.target)) + offset, address(s.source), s.source);
        break;
      }
      case step_kind::local_slice:
        for (const comm::block& box : moves_of(s.target).incoming) {
          comm::copy_block(t_.code[s.target].type, address(s.target), address(s.source), box);
        }
        break;
      case step_kind::move: communicate(s.target); break;
      case step_kind::region_begin: {
        std::int64_t& limit = limit_[static_cast<std::size_t>(s.region)];
        limit = most_iterations(t_.code[s.region], s.source < 0 ? 0 : whole_number(s.source));
        iteration(s.region) = first_iteration(s.region);
        return limit > 0 ? n + 1 : s.jump;
      }
      case step_kind::loop_test:
        // Of a loop that is not over by then, this iteration is the last.
        if (whole_number(s.source) == 0) limit_[static_cast<std::size_t>(s.region)] = 0;
        break;
      case step_kind::region_end: {
        const bool is_reverse = attributes_of<region_attributes>(t_.code[s.region]).reverse;
        const std::int64_t next = iteration(s.region) + (is_reverse ? -1 : 1);
        const bool is_over = next < 0 || next >= limit_[static_cast<std::size_t>(s.region)];
        // When it begins again, its carries are set before it does.
        iteration(s.region) = is_over ? first_iteration(s.region) : next;
        if (is_over) break;
        return s.jump;
      }
    }
    return n + 1;
  }

  void check_arguments() {
    for (int id = 0; id < t_.code.size; ++id) {
      if (structure_of(t_.code[id]) == structure::argument) finite_.look_at(id, address(id));
    }
    finite_.begin();
  }
  /// Looks at what a step has computed, or received. Chains look at what they do themselves.
  void check_step(const device_step& s) {
    if (s.kind == step_kind::kernel || s.kind == step_kind::add) {
      const int last = s.target + further_results(t_.code.code, t_.code.size, s.target);
      for (int id = s.target; id <= last; ++id) finite_.look_at(id, address(id));
    } else if (s.kind == step_kind::move) {
      int id = s.target;
      do {
        finite_.look_at(id, address(id));
        ++id;
      } while (id < t_.code.size && t_.code[id].op->facts.travels_along);
    }
    report_not_finite();
  }

  /// Assigns each instruction the places of its boxes, messages and further results.
  void give_places() {
    int boxes = 0;
    int messages = 0;
    int results = 0;
    for (int id = 0; id < t_.code.size; ++id) {
      const op_info& op = *t_.code[id].op;
      const auto at = static_cast<std::size_t>(id);
      if (op.positional) boxes_at_[at] = boxes++;
      // Those that travel along are in the messages of the one that they travel with.
      const bool begins_messages = collective_index(&op) >= 0 && !op.facts.travels_along;
      if (begins_messages && has_messages(t_.mesh, t_.code, id)) message_of_[at] = messages++;
      const int further = further_results(t_.code.code, t_.code.size, id);
      if (further > 0) first_result_[at] = results;
      results += further;
    }
    boxes_ = object_vector<instruction_boxes>(static_cast<std::size_t>(boxes));
    messages_ = object_vector<message_table>(static_cast<std::size_t>(messages));
    results_beyond_ = plain_vector<kernels::further_result>(static_cast<std::size_t>(results));
  }

  /// Finds the products that a chain can follow.
  void find_tails() {
    for (int n = 0; n + 1 < steps_.size(); ++n) {
      const device_step& product = steps_[n];
      if (product.kind != step_kind::kernel || steps_[n + 1].kind != step_kind::chain) continue;
      const instruction& i = t_.code[product.target];
      if (!i.op->facts.contracts || !is_floating(i.type)) continue;
      tails_[static_cast<std::size_t>(product.launch)] =
          tail_finder(t_, causal_, steps_[n + 1].launch, product.target).fit();
    }
  }

  void prepare(int id) {
    const instruction& i = t_.code[id];
    if (const int at = boxes_at_[static_cast<std::size_t>(id)]; at >= 0) {
      boxes_[static_cast<std::size_t>(at)] = boxes_of(t_.mesh, t_.code, id, device_);
    }
    for (int k = inline_operands; k < i.operand_count; ++k) {
      const instruction& operand = t_.code.operand(id, k);
      further_[static_cast<std::size_t>(i.further + k - inline_operands)] = {nullptr, operand.type, operand.shape};
    }
    for (int n = 1; n <= further_results(t_.code.code, t_.code.size, id); ++n) {
      const int at = first_result_[static_cast<std::size_t>(id)] + n - 1;
      results_beyond_[static_cast<std::size_t>(at)] = {nullptr, t_.code[id + n].type, t_.code[id + n].shape};
    }
    contexts_[static_cast<std::size_t>(id)] = {i.op->name, i.where.file, i.where.line};
    const int kind = collective_index(i.op);
    // Those that travel along are prepared with the one that they travel with.
    if (kind < 0 || i.op->facts.travels_along) return;
    const auto what = static_cast<collective>(kind);
    const int channel = kind * 256 + static_cast<int>(attributes_of<collective_attributes>(i).axes);
    if (has_owner(i)) {
      std::int64_t elements = i.shape.elements();
      if (const int at = message_of_[static_cast<std::size_t>(id)]; at >= 0) {
        message_table& all = messages_[static_cast<std::size_t>(at)];
        all = t_.transfers.together(t_.mesh, t_.code, id, device_, channel);
        elements = all.sent;
      }
      owner_at_.resize(static_cast<std::size_t>(t_.code.size), -1);
      owner_at_[static_cast<std::size_t>(id)] = static_cast<int>(owners_.size());
      owners_.push_back(owner_exchange(t_.mesh, t_.code, id, device_, channel, elements));
      owners_.back().prepare(comm_);
      return;
    }
    if (const int at = message_of_[static_cast<std::size_t>(id)]; at >= 0) {
      message_table& all = messages_[static_cast<std::size_t>(at)];
      all = t_.transfers.together(t_.mesh, t_.code, id, device_, channel);
      for (travelling_collective& one : all.collectives) {
        if (t_.where[one.id].is_displaced) leave_in_place(one.id, one.boxes);
      }
      if (what == collective::all_reduce) {
        comm_.prepare(static_cast<const comm::transfer_group&>(all.moves));
      } else {
        comm_.prepare(all.moves);
      }
      return;
    }
    comm::transfer& moves = moves_[static_cast<std::size_t>(id)];
    moves = t_.transfers.one(t_.mesh, t_.code, id, device_, channel, 0);
    if (t_.where[id].is_displaced) leave_in_place(id, moves);
    if (what == collective::all_reduce) {
      comm_.prepare(static_cast<const comm::transfer_group&>(moves));
    } else if (what != collective::local_slice) {
      comm_.prepare(moves);
    }
  }

  /// The elements that the device has itself stay where they are.
  void leave_in_place(int id, comm::transfer& moves) {
    const int rows = rows_around(t_.mesh, t_.code, id);
    const std::int64_t row = stride_of(t_.code[id].shape, rows) * size_of(t_.code[id].type);
    displaced_by_[static_cast<std::size_t>(id)] = rows_to_needed(t_.mesh, t_.code, id, rows, device_) * row;
    moves.incoming[static_cast<std::size_t>(moves.self)] = comm::empty_block();
    moves.outgoing[static_cast<std::size_t>(moves.self)] = comm::empty_block();
  }

  void run_chain(int u) {
    chains_.run(
        u, chain_scratch(), [this](int value) { return address(value); }, [this](int value) { return boxes(value); });
  }

  /// Runs a product and the chain that follows it, part by part; false if they have to run one after the other.
  [[nodiscard]] bool run_with_tail(int n) {
    const device_step& product = steps_[n];
    const tail_fit& fit = tails_[static_cast<std::size_t>(product.launch)];
    // Values are looked at one by one, and each as a whole.
    if (!fit.fits || product.kind != step_kind::kernel || finite_.is_on()) return false;
    if (available_threads() > chains_.threads()) return false;  // more than there is scratch for
    const auto at = [this](int value) { return address(value); };
    const int chain = steps_[n + 1].launch;
    if (!may_follow(t_, chain, product.target, at)) return false;
    const auto multiply = [&](kernels::product_tail& tail) { call_kernel(product.launch, product.target, &tail); };
    if (!chains_.follow(
            chain, fit, chain_scratch(), at, [this](int value) { return boxes(value); }, multiply))
      run_chain(chain);
    return true;
  }

  void call_kernel(int u, int id, kernels::product_tail* tail = nullptr) {
    const instruction& i = t_.code[id];
    if (i.op->facts.looks && !looks_) return;
    kernels::kernel_call call;
    call.tail = tail;
    for (int k = 0; k < i.operand_count && k < inline_operands; ++k) call.operand[k] = address(i.operand[k]);
    if (i.operand_count > inline_operands) call.further = further_operands(i);
    if (first_result_[static_cast<std::size_t>(id)] >= 0) call.further_results = further_results_of(id);
    call.result = address(id);
    call.scalar = i.scalar;
    call.boxes = boxes(id);
    call.windows = t_.code.windows;
    call.scratch = scratch_.data();
    kernels::look_site site;
    if (i.op->facts.looks) {
      site = site_of(id);
      call.site = &site;
      comm_.set_context(&contexts_[static_cast<std::size_t>(id)]);
    }
    kernels_.run(u, call);
  }
  [[nodiscard]] kernels::look_site site_of(int id) const {
    const instruction& i = t_.code[id];
    kernels::look_site site{&i, &t_.mesh, &t_.code.annotations[i.annotation].placement, device_, 0, {}};
    for (int region = i.region; region >= 0 && site.loops < 4; region = t_.code[region].region) {
      site.iteration[site.loops++] = iteration_[static_cast<std::size_t>(region)];
    }
    return site;
  }

  /// Returns the present addresses of the operands after the first `inline_operands`.
  [[nodiscard]] const kernels::further_operand* further_operands(const instruction& i) {
    kernels::further_operand* const all = &further_[static_cast<std::size_t>(i.further)];
    for (int k = inline_operands; k < i.operand_count; ++k) {
      all[k - inline_operands].data = address(t_.code.operand_at(i, k));
    }
    return all;
  }

  /// Returns the present addresses of the results after the first.
  [[nodiscard]] const kernels::further_result* further_results_of(int id) {
    kernels::further_result* const all =
        &results_beyond_[static_cast<std::size_t>(first_result_[static_cast<std::size_t>(id)])];
    for (int n = further_results(t_.code.code, t_.code.size, id); n > 0; --n) all[n - 1].data = address(id + n);
    return all;
  }

  /// Copies as many bytes as value `like` has.
  void copy(void* target, const void* source, int like) const {
    if (target != source) copy_bytes(target, source, bytes_of(t_.code[like]));
  }
  [[nodiscard]] void* saved(int id) const { return arena() + t_.saved_at[id]; }

  void add(int sum, int term) const {
    const instruction& i = t_.code[sum];
    add_terms_to(t_.reducer_of(i.type, reduction::sum).tile, size_of(i.type), i.shape.elements(), address(sum),
                 address(term));
  }

  void communicate(int id) {
    comm_.set_context(&contexts_[static_cast<std::size_t>(id)]);
    const owner_exchange* const owners = owner_exchange_of(id);
    const message_table* const all = messages_of(id);
    if (all != nullptr) pack(*all);
    if (owners != nullptr) {
      owners->run(comm_, address(t_.code[id].operand[1]),
                  all != nullptr ? sent_memory() : address(t_.code[id].operand[0]),
                  all != nullptr ? received_memory(*all) : address(id));
    } else if (all != nullptr) {
      move(id, all->moves, sent_memory(), received_memory(*all), all->sent);
    } else {
      move(id, moves_of(id), address(t_.code[id].operand[0]), address(id), t_.code[id].shape.elements());
    }
    if (all != nullptr) unpack(*all);
  }

  /// `count`: the elements of an all_reduce, on all members of its group alike.
  void move(int id, const comm::transfer& moves, const void* source, void* target, std::int64_t count) {
    const instruction& i = t_.code[id];
    const auto kind = static_cast<collective>(collective_index(i.op));
    const reduction combine = attributes_of<collective_attributes>(i).combine;
    if (!facts_of(kind).reduces) {
      comm_.exchange(moves, source, target);
    } else if (kind != collective::all_reduce) {
      comm_.reduce_exchange(moves, source, target, t_.reducer_of(i.type, combine));
    } else if (count > 0) {
      comm_.all_reduce(moves, source, target, count, t_.reducer_of(i.type, combine));
    }
  }

  [[nodiscard]] std::int64_t first_iteration(int region) const {
    const bool is_reverse = attributes_of<region_attributes>(t_.code[region]).reverse;
    return is_reverse ? limit_[static_cast<std::size_t>(region)] - 1 : 0;
  }
  /// The value of an integer or a truth value without dimensions.
  [[nodiscard]] std::int64_t whole_number(int id) const {
    const void* const at = address(id);
    return with_storage(t_.code[id].type, [at](auto element) {
      std::memcpy(&element, at, sizeof element);
      return static_cast<std::int64_t>(element);
    });
  }
  [[nodiscard]] std::int64_t& iteration(int region) { return iteration_[static_cast<std::size_t>(region)]; }

  shared_buffer arena_;
  shared_buffer scratch_;
  plain_vector<std::int64_t> iteration_;
  /// The number of iterations of each loop, as far as it is known by now.
  plain_vector<std::int64_t> limit_;
  /// By launch: of products, how the chain after them follows.
  plain_vector<tail_fit> tails_;
  /// The boxes of positional instructions; and by instruction, which of them are its own.
  object_vector<instruction_boxes> boxes_;
  plain_vector<int> boxes_at_;
  /// The bytes from where the buffer of an instruction's operand begins, where this device's begins there.
  plain_vector<std::int64_t> displaced_by_;
  object_vector<comm::transfer> moves_;
  /// The messages of collectives that travel together; by instruction, which of these are its own; and the memory of
  /// those that are under way.
  object_vector<message_table> messages_;  // they stay where they were prepared
  plain_vector<int> message_of_;
  shared_buffer message_memory_;
  /// Exchanges from owners, and by instruction which of them are its own.
  object_vector<owner_exchange> owners_;
  plain_vector<int> owner_at_;
  plain_vector<comm::context> contexts_;
  /// The addresses for the graph's table of further operands.
  plain_vector<kernels::further_operand> further_;
  /// Results after the first, and by instruction which of these are its own.
  plain_vector<int> first_result_;
  plain_vector<kernels::further_result> results_beyond_;
  plain_vector<void*> arguments_;
  plain_vector<void*> results_;
};

}  // namespace espalier::detail
