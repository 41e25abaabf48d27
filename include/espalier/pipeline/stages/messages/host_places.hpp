// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/joined.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <string>

#if defined(__linux__)
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace espalier::pipeline::detail {

/// The places of this host's ranks, in memory that they share: they can be read even if a rank is stopped, or inside a
/// layer, and does not answer. Not collective: a rank that cannot share it, or is on another host, is just not known.
class host_places {
 public:
  static constexpr int unknown = -1;

  host_places(int rank, int size) : rank_(rank), bytes_(static_cast<std::size_t>(size) * sizeof(place)) {
#if defined(__linux__)
    name_ = "/dev/shm/espalier-places-" + job() + '-' + std::to_string(size) + '-' + std::to_string(number_of_next());
    const int file = ::open(name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return;
    if (::ftruncate(file, static_cast<::off_t>(bytes_)) == 0) {
      void* const memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      if (memory != MAP_FAILED) places_ = static_cast<place*>(memory);
    }
    ::close(file);
#endif
    set(unknown);
  }
  host_places(const host_places&) = delete;
  host_places& operator=(const host_places&) = delete;
  ~host_places() {
    all_are_here();
#if defined(__linux__)
    if (places_ != nullptr) ::munmap(static_cast<void*>(places_), bytes_);
#endif
  }

  /// All ranks have it: it needs no name any more.
  void all_are_here() {
#if defined(__linux__)
    if (!name_.empty()) ::unlink(name_.c_str());
    name_.clear();
#endif
  }
  void set(int number) {
    if (places_ != nullptr) places_[rank_].store(number + 1, std::memory_order_relaxed);  // fresh memory: unknown
  }
  [[nodiscard]] int of(int rank) const {
    return places_ == nullptr ? unknown : places_[rank].load(std::memory_order_relaxed) - 1;
  }

 private:
  using place = std::atomic<int>;
  static_assert(place::is_always_lock_free, "places are shared between processes");

  /// Ranks make theirs in the same order.
  [[nodiscard]] static int number_of_next() {
    static std::atomic<int> number{0};
    return number.fetch_add(1);
  }
#if defined(__linux__)
  /// The launcher's number of this run, the same for all of its ranks.
  [[nodiscard]] static std::string job() {
    for (const char* variable : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "SLURM_JOB_ID"}) {
      const char* const text = std::getenv(variable);
      if (text == nullptr || *text == '\0') continue;
      std::string bare = std::string(text).substr(0, 60);
      std::replace(bare.begin(), bare.end(), '/', '-');
      return bare;
    }
    return espalier::detail::joined({"of-", ::getppid()});
  }
#endif

  int rank_;
  std::size_t bytes_;
  std::string name_;
  place* places_ = nullptr;
};

}  // namespace espalier::pipeline::detail
