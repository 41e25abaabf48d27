// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The one truth about the version; CMake parses these three lines.
#define ESPALIER_VERSION_MAJOR 0
#define ESPALIER_VERSION_MINOR 1
#define ESPALIER_VERSION_PATCH 0

/// The version as one number, to compare: `#if ESPALIER_VERSION >= 102` is for what came with 0.1.2.
#define ESPALIER_VERSION (ESPALIER_VERSION_MAJOR * 10000 + ESPALIER_VERSION_MINOR * 100 + ESPALIER_VERSION_PATCH)
