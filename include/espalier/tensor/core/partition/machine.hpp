// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

namespace espalier {

// The passes weigh work, messages and collectives against one another before any machine is known. These are their
// assumptions about the machine, each in bytes that a device could send meanwhile.

/// The cost of starting a collective, in bytes. It keeps a plan from replacing one all-reduce by three steps that share
/// it out over idle axes, unless the tensor is large enough to gain by it.
inline constexpr std::int64_t collective_latency = 16384;

/// A tensor joins others in one collective if sending it takes no longer than starting to: beyond, the two copies, into
/// the message and out of it, outweigh the start. Extents of the whole tensor decide, so that a program has the same
/// form on every mesh.
inline constexpr std::int64_t merged_bytes_limit = collective_latency;

/// Floating-point operations of a device in the time that it takes to send a byte.
inline constexpr double operations_per_byte = 40;

/// The bytes that a collective must save before a plan adds it although no annotation asks for it. The rates above are
/// guesses, and a program without annotations is expected to communicate nothing unless that is plainly slower.
inline constexpr double unasked_collective = 1 << 20;

/// An op that does fewer operations with each element that it reads or writes waits for memory.
inline constexpr std::int64_t bound_by_memory_below = 16;

}  // namespace espalier
