// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Headers of other libraries that most tests include: clang reads them once for all of them (compile_check.py
// --precompile). Of ours nothing: with one name of ours more in sight a test may mean something else.
#pragma once

#include <boost/hana.hpp>
#if ESPALIER_USE_MPI
#include <boost/mpi/communicator.hpp>
#include <boost/mpi/environment.hpp>
#endif
#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>
