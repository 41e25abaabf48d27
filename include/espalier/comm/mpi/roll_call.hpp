// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/joined.hpp>
#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/base/light_std/sort_few.hpp>
#include <espalier/comm/communicator.hpp>
#include <espalier/comm/launch.hpp>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#if defined(__linux__)
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#endif

namespace espalier::comm::detail {

/// Tells which of this host's ranks have come to a place that all ranks come to, before MPI can tell: each holds a
/// socket whose name says so. Names without a file (Linux has them) vanish with their process, however it ends.
class roll_call {
 public:
  struct findings {
    std::string text;
    bool speaks_first = true;  // this rank is the first of those that came
  };

  /// This rank is here, for as long as this exists. `number`: of the place.
  explicit roll_call(int number) : prefix_(joined({"espalier-", job(), "-", number, "-"})) {
#if defined(__linux__)
    const std::string name = joined({prefix_, launcher_rank(), "-", ::getpid()});
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (name.size() + 1 > sizeof address.sun_path) return;
    std::memcpy(&address.sun_path[1], name.data(), name.size());
    socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket_ < 0) return;
    const std::size_t size = offsetof(sockaddr_un, sun_path) + 1 + name.size();
    // The cast is usual for this call: the interface takes the base of all addresses.
    if (::bind(socket_, reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(size)) != 0) leave();
#endif
  }
  ~roll_call() { leave(); }
  roll_call(const roll_call&) = delete;
  roll_call& operator=(const roll_call&) = delete;

  /// Remembers which ranks are here now.
  void look() {
    for (const present& one : everybody()) {
      if (!has(seen_, one.rank)) seen_.push_back(one);
    }
    espalier::detail::sort_few(seen_, &is_before);
  }

  /// Which ranks are missing, stopped or gone, as far as this host shows.
  [[nodiscard]] findings report() {
    const espalier::detail::plain_vector<present> here = everybody();
    look();
    std::vector<int> missing;
    std::vector<int> stopped;
    std::vector<int> gone;
    for (const present& one : seen_) {
      const bool is_here = has(here, one.rank);
      if (!is_here) gone.push_back(one.rank);
      if (is_here && is_stopped(one.process)) stopped.push_back(one.rank);
    }
    const int all = launcher_size();
    const int local = launcher_local_size();
    const int come = static_cast<int>(seen_.size());
    for (int rank = 0; rank < all && come > 0 && local == all; ++rank) {
      if (!has(seen_, rank)) missing.push_back(rank);
    }

    findings found;
    found.speaks_first = here.empty() || here.front().rank == launcher_rank();
    const auto add = [&](std::initializer_list<espalier::detail::text_piece> reason) {
      if (!found.text.empty()) found.text += "; ";
      append_text(found.text, reason);
    };
    const auto list = [&](const std::vector<int>& ranks, const char* one, const char* several) {
      if (!ranks.empty()) add({list_ranks(ranks), ranks.size() == 1 ? one : several});
    };
    list(missing, " has not come", " have not come");
    list(stopped, " came, but is stopped", " came, but are stopped");
    list(gone, " came, but has ended", " came, but have ended");
    if (come > 0 && local > come && local != all) {
      add({local - come, " of the ", local, " ranks on this host have not come"});
    }
    if (found.text.empty() && come > 0 && local == all)
      add({"all ranks have come, but the MPI library does not go on"});
    if (found.text.empty() && come > 0 && local == come) add({"all ranks on this host have come, some other has not"});
    if (found.text.empty()) add({"some rank has not come (which, cannot be seen from here)"});
    return found;
  }

 private:
  struct present {
    int rank;
    int process;
  };
  static bool is_before(const present& a, const present& b) { return a.rank < b.rank; }
  static bool has(const espalier::detail::plain_vector<present>& some, int rank) {
    for (const present& one : some) {
      if (one.rank == rank) return true;
    }
    return false;
  }

  /// The launcher's number of this run, the same for all of its ranks.
  [[nodiscard]] static std::string job() {
    for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "SLURM_JOB_ID"}) {
      const char* const text = std::getenv(name);
      if (text != nullptr && *text != '\0') return std::string(text).substr(0, 60);
    }
#if defined(__linux__)
    return joined({"of-", ::getppid()});
#else
    return "";
#endif
  }

  /// Returns the ranks of this host that are here; none where that cannot be seen.
  [[nodiscard]] espalier::detail::plain_vector<present> everybody() const {
    espalier::detail::plain_vector<present> found;
    std::FILE* const sockets = std::fopen("/proc/net/unix", "r");
    if (sockets == nullptr) return found;
    const std::string name = '@' + prefix_;
    char line[512];  // of which the name is at most 108
    while (std::fgets(line, sizeof line, sockets) != nullptr) {
      const char* const at = std::strstr(line, name.c_str());
      present one{};
      if (at != nullptr && std::sscanf(at + name.size(), "%d-%d", &one.rank, &one.process) == 2) found.push_back(one);
    }
    std::fclose(sockets);
    espalier::detail::sort_few(found, &is_before);
    return found;
  }

  [[nodiscard]] static bool is_stopped(int process) {
    std::FILE* const status = std::fopen(joined({"/proc/", process, "/stat"}).c_str(), "r");
    if (status == nullptr) return false;
    char text[512] = "";
    const bool is_read = std::fgets(text, sizeof text, status) != nullptr;
    std::fclose(status);
    const char* const name_end = is_read ? std::strrchr(text, ')') : nullptr;  // of a name that may hold anything
    char state = ' ';
    return name_end != nullptr && std::sscanf(name_end, ") %c", &state) == 1 && (state == 'T' || state == 't');
  }

  void leave() {
#if defined(__linux__)
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
#endif
  }

  std::string prefix_;
  int socket_ = -1;
  espalier::detail::plain_vector<present> seen_;
};

}  // namespace espalier::comm::detail
