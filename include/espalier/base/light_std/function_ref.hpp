// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace espalier::detail {

/// A reference to a callable, which has to outlive it. A function that takes one is compiled once, whatever it is
/// called with. Unlike `std::function` it owns nothing, and its header includes nothing.
template <class Signature> class function_ref;
template <class Result, class... Arguments> class function_ref<Result(Arguments...)> {
 public:
  template <class Function>
  function_ref(const Function& function)  // NOLINT(google-explicit-constructor): a lambda is given where one is taken
      : function_(&function), call_([](const void* there, Arguments... arguments) -> Result {
          return (*static_cast<const Function*>(there))(arguments...);
        }) {}
  Result operator()(Arguments... arguments) const { return call_(function_, arguments...); }

 private:
  const void* function_;
  Result (*call_)(const void*, Arguments...);
};

}  // namespace espalier::detail
