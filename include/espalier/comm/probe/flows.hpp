// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/probe/arrivals.hpp>
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
};

/// Sends the flows of a round all at the same time, and measures them where they arrive.
///
/// Synchronous sends are the acknowledgement that keeps the window: what is under way when the time is over has to
/// drain before the next round, and on a slow link a full socket takes a second for that. Messages stay below the
/// limits from which transports negotiate each one.
class flow_meter {
 public:
  explicit flow_meter(probe_wire& wire) : wire_(wire) {}

  /// Where the rates of a round are taken. Flows that meet at one host are all seen there, in the same stretch of time,
  /// since only then do their rates add up. A flow alone that is slow is given up to ten times as long.
  enum class seen { alone, where_it_ends, where_it_begins };

  /// The rate of each flow in bytes per second; 0 except on the rank where it is seen. Collective.
  [[nodiscard]] std::vector<double> run(const std::vector<probe_flow>& flows, double seconds, seen where) {
    seconds_ = seconds;
    patient_ = where == seen::alone;
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
        senders_.push_back({flows[f], tag_of(f), 0, f, 0, false, false, {}});
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
          return probe_peers{{of.incoming ? receivers_[of.flow].what.from : senders_[of.flow].what.to}, of.incoming};
        });
    std::vector<double> rates(flows.size(), 0.0);
    const auto bytes = [](const probe_flow& flow, double messages) {
      return static_cast<double>(flow.message_bytes) * messages;
    };
    if (where == seen::where_it_begins) {
      for (const sender& out : senders_)
        rates[out.index] = bytes(out.what, out.acknowledged.rate(out.began + seconds / 2, out.began + seconds));
      return rates;
    }
    double first = std::numeric_limits<double>::max();
    for (const receiver& in : receivers_)
      if (in.log.count() > 0) first = std::min(first, in.log.first());
    for (const receiver& in : receivers_)
      rates[in.index] = bytes(in.what, patient_ ? in.log.rate() : in.log.rate(first + seconds / 2, first + seconds));
    return rates;
  }

 private:
  struct owner {
    bool incoming = false;
    std::size_t flow = 0;
    int slot = 0;
    bool ended = false;
  };
  struct sender {
    probe_flow what;
    int tag = 0;
    double began = 0;
    std::size_t index = 0;  // of the flow
    int places = 0;         // messages that may be under way
    bool widened = false;
    bool over = false;
    arrivals acknowledged;
  };
  struct receiver {
    probe_flow what;
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
  static constexpr double cover_seconds = 0.008;
  static constexpr double longest = 10;              // times the intended time
  static constexpr std::size_t enough_messages = 6;  // in the half that counts

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

  void begin_receiving(std::size_t r) {
    for (int slot = 0; slot < receivers_[r].what.widest; ++slot) post(new_request({true, r, slot}));
  }
  void begin_sending(std::size_t s) {
    senders_[s].began = now();
    for (int slot = 0; slot < senders_[s].what.window; ++slot) push(new_request({false, s, slot}));
    senders_[s].places = senders_[s].what.window;
  }

  [[nodiscard]] std::byte* buffer_of(const owner& of) {
    const receiver& in = receivers_[of.flow];
    return memory_.reserve(0) + in.place + of.slot * in.what.message_bytes;
  }
  void post(std::size_t at) {
    const receiver& in = receivers_[owners_[at].flow];
    wire_.check(MPI_Irecv(buffer_of(owners_[at]), static_cast<int>(in.what.message_bytes), bytes_type(), in.what.from,
                          in.tag, wire_.communicator(), &requests_[at]),
                "MPI_Irecv");
  }
  void push(std::size_t at) {
    const sender& out = senders_[owners_[at].flow];
    wire_.check(MPI_Issend(outgoing_.data(), static_cast<int>(out.what.message_bytes), bytes_type(), out.what.to,
                           out.tag, wire_.communicator(), &requests_[at]),
                "MPI_Issend");
  }

  /// Each message that arrives is replaced by another receive, each that is acknowledged by another send, until the
  /// time is over. Then every place of the window sends an end, which is not replaced: none is left on either side.
  void settle(std::size_t at) {
    const owner of = owners_[at];
    if (of.incoming) {
      if (*buffer_of(of) == ends) return;
      receivers_[of.flow].log.add(now());
      post(at);
      return;
    }
    if (of.ended) return;
    sender& out = senders_[of.flow];
    const double when = now();
    out.acknowledged.add(when);
    const double taken = when - out.began;
    const bool told = !patient_ || out.acknowledged.late() >= enough_messages || taken >= longest * seconds_;
    if (taken < seconds_ || !told) {
      if (!out.widened && taken >= widening * seconds_) widen(of.flow);
      push(at);
      return;
    }
    end(at);
    if (out.over) return;
    out.over = true;
    for (; out.places < out.what.widest; ++out.places) end(new_request({false, owners_[at].flow, 0, true}));
  }

  void widen(std::size_t s) {
    sender& out = senders_[s];
    out.widened = true;
    const double now_at = out.began + widening * seconds_;
    const double rate =
        out.acknowledged.rate(now_at - looking * seconds_, now_at) * static_cast<double>(out.what.message_bytes);
    const int wanted = static_cast<int>(std::min(rate * cover_seconds / static_cast<double>(out.what.message_bytes),
                                                 static_cast<double>(out.what.widest)));
    for (; out.places < wanted; ++out.places) push(new_request({false, s, 0}));
  }

  void end(std::size_t at) {
    owners_[at].ended = true;
    const sender& out = senders_[owners_[at].flow];
    wire_.check(MPI_Isend(&end_message_, 1, bytes_type(), out.what.to, out.tag, wire_.communicator(), &requests_[at]),
                "MPI_Isend");
  }

  probe_wire& wire_;
  double seconds_ = 0;
  bool patient_ = false;
  std::vector<sender> senders_;
  std::vector<receiver> receivers_;
  std::vector<MPI_Request> requests_;
  std::vector<owner> owners_;
  staging_buffer memory_;
  std::vector<std::byte> outgoing_;
  std::byte end_message_ = ends;
};

}  // namespace espalier::comm::detail
