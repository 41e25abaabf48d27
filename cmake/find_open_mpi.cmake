# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0

# find_open_mpi(<out>): whether programs are started by Open MPI, which has options that other launchers do not have.
function(find_open_mpi out)
  execute_process(COMMAND "${MPIEXEC_EXECUTABLE}" --version OUTPUT_VARIABLE launcher ERROR_QUIET)
  set(${out} OFF PARENT_SCOPE)
  if(launcher MATCHES "Open MPI|OpenRTE|open-mpi")
    set(${out} ON PARENT_SCOPE)
  endif()
endfunction()
