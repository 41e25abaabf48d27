// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace espalier::detail {

/// The version of the form of plans, in their first line. It changes when a plan has other lines or fields.
inline constexpr int plan_version = 1;

}  // namespace espalier::detail
