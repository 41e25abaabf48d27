// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/probe/arrivals.hpp>
#include <espalier/comm/probe/figures.hpp>
#include <espalier/comm/probe/wire.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace espalier::comm::detail {

/// A stream of messages from one rank to another, of which first `window`, and once the rate is known roughly, what
/// covers a scheduler's delays, up to `widest` may be under way.
struct probe_flow {
  int from = 0;
  int to = 0;
  std::int64_t message_bytes = 16 << 10;
  int window = 8;
  int widest = 48;
  /// The rate that the flow reaches alone, in bytes per second; 0: not known, and it ends when the time is over. A flow
  /// that is faster is a burst, which shapers and cards let pass, and does not tell what it can keep up: a round of
  /// flows that one rank sees goes on until there is none, and that rank tells the others when to end.
  double alone = 0;
};

/// Sends the flows of a round all at the same time, and measures them where they arrive, or where they begin.
///
/// Synchronous sends are the acknowledgement that keeps the window: what is under way when the time is over has to
/// drain before the next round, and on a slow link a full socket takes a second for that. Messages stay below the
/// limits from which transports negotiate each one.
class flow_meter {
 public:
  explicit flow_meter(probe_wire& wire) : wire_(wire) {}

  /// Bytes of a flow are under way for this long: a scheduler's delays.
  static constexpr double cover_seconds = 0.008;

  /// The place where the rates of a round are taken. Flows that meet at one host are all seen there, in the same
  /// stretch of time, since only then do their rates add up. A flow alone that is slow is given up to ten times as
  /// long.
  enum class seen { alone, where_it_ends, where_it_begins };

  /// The rate of each flow in bytes per second; 0 except on the rank where it is seen. `more_seconds`: how much longer
  /// a round may take where there are bursts. Collective.
  [[nodiscard]] std::vector<double> run(const std::vector<probe_flow>& flows, double seconds, seen where,
                                        double more_seconds = 0) {
    seconds_ = seconds;
    more_seconds_ = more_seconds;
    where_ = where;
    over_ = false;
    looked_ = 0;
    senders_.clear();
    receivers_.clear();
    requests_.clear();
    owners_.clear();
    wire_.meet();
    std::int64_t room = 0;
    for (std::size_t f = 0; f < flows.size(); ++f) {
      if (flows[f].to == wire_.rank()) {
        receivers_.push_back({flows[f], tag_of(f), f, room, {}});
        room += flows[f].message_bytes * flows[f].widest;
      }
      if (flows[f].from == wire_.rank()) {
        senders_.push_back({flows[f], tag_of(f), 0, f, 0, false, false, false, {}});
        if (outgoing_.size() < static_cast<std::size_t>(flows[f].message_bytes))
          outgoing_.resize(static_cast<std::size_t>(flows[f].message_bytes), goes_on);
      }
    }
    (void)memory_.reserve(room);
    for (std::size_t r = 0; r < receivers_.size(); ++r) begin_receiving(r);
    for (std::size_t s = 0; s < senders_.size(); ++s) begin_sending(s);
    wire_.wait(
        requests_, [this](std::size_t at) { settle(at); },
        [this](std::size_t at) {
          const owner of = owners_[at];
          const int peer = of.incoming ? receivers_[of.flow].probe.from : senders_[of.flow].probe.to;
          return probe_peers{{peer}, of.incoming != of.tells};
        });
    std::vector<double> rates(flows.size(), 0.0);
    const double end = over_ ? looked_ : first_seen() + seconds;
    for_each_seen([&](const probe_flow& flow, std::size_t index, const arrivals& log) {
      const double messages = where == seen::alone ? log.rate() : log.rate(end - seconds / 2, end);
      rates[index] = static_cast<double>(flow.message_bytes) * messages;
    });
    return rates;
  }

 private:
  struct owner {
    bool incoming = false;  // the flow
    std::size_t flow = 0;
    int slot = 0;
    bool ended = false;
    bool tells = false;  // that the round is over, against the flow's direction
  };
  struct sender {
    probe_flow probe;
    int tag = 0;
    double began = 0;
    std::size_t index = 0;  // of the flow
    int places = 0;         // messages that may be under way
    bool widened = false;
    bool over = false;
    bool told = false;  // that the round is over
    arrivals acknowledged;
  };
  struct receiver {
    probe_flow probe;
    int tag = 0;
    std::size_t index = 0;   // of the flow
    std::int64_t place = 0;  // in memory_
    arrivals log;
  };

  // The first byte of a message.
  static constexpr std::byte goes_on{0};
  static constexpr std::byte ends{1};

  static constexpr double widening = 0.4;  // of the intended time; what passes as a burst is over
  static constexpr double looking = 0.15;
  static constexpr double longest = 10;              // times the intended time
  static constexpr std::size_t enough_messages = 6;  // in the half that counts
  static constexpr double look_again = 0.001;        // seconds

  static constexpr int first_tag = 16;
  [[nodiscard]] static int tag_of(std::size_t flow) { return first_tag + static_cast<int>(flow); }
  [[nodiscard]] static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  std::size_t new_request(owner of) {
    requests_.push_back(no_request());
    owners_.push_back(of);
    return requests_.size() - 1;
  }

  /// The flows that this rank sees: `visit(flow, index, log)`.
  template <class Visit> void for_each_seen(Visit visit) const {
    if (where_ == seen::where_it_begins) {
      for (const sender& out : senders_) visit(out.probe, out.index, out.acknowledged);
    } else {
      for (const receiver& in : receivers_) visit(in.probe, in.index, in.log);
    }
  }
  /// The time when the round began, for a rank that sees it.
  [[nodiscard]] double first_seen() const {
    double first = std::numeric_limits<double>::max();
    if (where_ == seen::where_it_begins) {
      for (const sender& out : senders_) first = std::min(first, out.began);
    } else {
      for_each_seen([&](const probe_flow&, std::size_t, const arrivals& log) {
        if (log.count() > 0) first = std::min(first, log.first());
      });
    }
    return first;
  }

  /// True if the round is over, for a rank that sees all of its flows.
  [[nodiscard]] bool has_seen_enough(double now) {
    if (over_) return true;
    const double taken = now - first_seen();
    if (taken < seconds_ || now - looked_ < look_again) return false;
    looked_ = now;
    bool bursts = false;
    for_each_seen([&](const probe_flow& flow, std::size_t, const arrivals& log) {
      const double rate = static_cast<double>(flow.message_bytes) * log.rate(now - seconds_ / 2, now);
      bursts = bursts || rate > (1 + probe_noise) * flow.alone;
    });
    over_ = !bursts || taken >= seconds_ + more_seconds_;
    return over_;
  }

  /// Flows that another rank ends.
  [[nodiscard]] bool is_told(const probe_flow& flow) const { return flow.alone > 0 && where_ == seen::where_it_ends; }

  void begin_receiving(std::size_t r) {
    for (int slot = 0; slot < receivers_[r].probe.widest; ++slot) post(new_request({true, r, slot}));
  }
  void begin_sending(std::size_t s) {
    senders_[s].began = now();
    for (int slot = 0; slot < senders_[s].probe.window; ++slot) push(new_request({false, s, slot}));
    senders_[s].places = senders_[s].probe.window;
    if (!is_told(senders_[s].probe)) return;
    const std::size_t at = new_request({false, s, 0, false, true});
    wire_.check(MPI_Irecv(nullptr, 0, bytes_type(), senders_[s].probe.to, senders_[s].tag, wire_.communicator(),
                          &requests_[at]),
                "MPI_Irecv");
  }

  [[nodiscard]] std::byte* buffer_of(const owner& of) {
    const receiver& in = receivers_[of.flow];
    return memory_.reserve(0) + in.place + of.slot * in.probe.message_bytes;
  }
  void post(std::size_t at) {
    const receiver& in = receivers_[owners_[at].flow];
    wire_.check(MPI_Irecv(buffer_of(owners_[at]), static_cast<int>(in.probe.message_bytes), bytes_type(), in.probe.from,
                          in.tag, wire_.communicator(), &requests_[at]),
                "MPI_Irecv");
  }
  void push(std::size_t at) {
    const sender& out = senders_[owners_[at].flow];
    wire_.check(MPI_Issend(outgoing_.data(), static_cast<int>(out.probe.message_bytes), bytes_type(), out.probe.to,
                           out.tag, wire_.communicator(), &requests_[at]),
                "MPI_Issend");
  }

  /// Each message that arrives is replaced by another receive, each that is acknowledged by another send, until the
  /// round is over. Then every place of the window sends an end, which is not replaced: none is left on either side.
  void settle(std::size_t at) {
    const owner of = owners_[at];
    if (of.tells) {
      if (!of.incoming) senders_[of.flow].told = true;
      return;
    }
    if (of.incoming) {
      if (*buffer_of(of) == ends) return;
      const double when = now();
      receivers_[of.flow].log.add(when);
      post(at);
      if (is_told(receivers_[of.flow].probe) && !over_ && has_seen_enough(when)) tell_all();
      return;
    }
    if (of.ended) return;
    sender& out = senders_[of.flow];
    const double when = now();
    out.acknowledged.add(when);
    const double taken = when - out.began;
    if (!is_over(out, when)) {
      if (!out.widened && taken >= widening * seconds_) widen(of.flow);
      push(at);
      return;
    }
    end(at);
    if (out.over) return;
    out.over = true;
    for (; out.places < out.probe.widest; ++out.places) end(new_request({false, owners_[at].flow, 0, true}));
  }

  [[nodiscard]] bool is_over(const sender& out, double when) {
    if (is_told(out.probe)) return out.told;
    if (out.probe.alone > 0 && where_ == seen::where_it_begins) return has_seen_enough(when);
    const double taken = when - out.began;
    if (taken < seconds_) return false;
    return where_ != seen::alone || out.acknowledged.late() >= enough_messages || taken >= longest * seconds_;
  }

  void tell_all() {
    for (std::size_t r = 0; r < receivers_.size(); ++r) {
      const std::size_t at = new_request({true, r, 0, false, true});
      wire_.check(MPI_Isend(nullptr, 0, bytes_type(), receivers_[r].probe.from, receivers_[r].tag, wire_.communicator(),
                            &requests_[at]),
                  "MPI_Isend");
    }
  }

  void widen(std::size_t s) {
    sender& out = senders_[s];
    out.widened = true;
    const double now_at = out.began + widening * seconds_;
    const double rate =
        out.acknowledged.rate(now_at - looking * seconds_, now_at) * static_cast<double>(out.probe.message_bytes);
    const int wanted = static_cast<int>(std::min(rate * cover_seconds / static_cast<double>(out.probe.message_bytes),
                                                 static_cast<double>(out.probe.widest)));
    for (; out.places < wanted; ++out.places) push(new_request({false, s, 0}));
  }

  void end(std::size_t at) {
    owners_[at].ended = true;
    const sender& out = senders_[owners_[at].flow];
    wire_.check(MPI_Isend(&end_message_, 1, bytes_type(), out.probe.to, out.tag, wire_.communicator(), &requests_[at]),
                "MPI_Isend");
  }

  probe_wire& wire_;
  double seconds_ = 0;
  double more_seconds_ = 0;
  seen where_ = seen::alone;
  bool over_ = false;  // for a rank that sees all flows of the round
  double looked_ = 0;  // last, whether it is
  std::vector<sender> senders_;
  std::vector<receiver> receivers_;
  std::vector<MPI_Request> requests_;
  std::vector<owner> owners_;
  staging_buffer memory_;
  std::vector<std::byte> outgoing_;
  std::byte end_message_ = ends;
};

}  // namespace espalier::comm::detail
