#include "dispatch.h"

#include <atomic>

namespace regard {
namespace {

#define REGARD_OF_AVX512(returned, name, arguments) , avx512::name
#define REGARD_OF_AVX2(returned, name, arguments) , avx2::name
#define REGARD_OF_GENERIC(returned, name, arguments) , generic::name

const std::vector<Kernels> available = [] {
  std::vector<Kernels> found;
#if defined(REGARD_X86)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    found.push_back(Kernels{"AVX-512", 16 REGARD_FUNCTIONS(REGARD_OF_AVX512)});
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
    found.push_back(Kernels{"AVX2", 8 REGARD_FUNCTIONS(REGARD_OF_AVX2)});
#endif
#if defined(__aarch64__)
  found.push_back(Kernels{"NEON", 4 REGARD_FUNCTIONS(REGARD_OF_GENERIC)});
#else
  found.push_back(Kernels{"generic", 4 REGARD_FUNCTIONS(REGARD_OF_GENERIC)});
#endif
  return found;
}();

std::atomic<const Kernels*> in_use{nullptr};

}  // namespace

const Kernels& kernels() {
  const Kernels* chosen = in_use;
  return chosen ? *chosen : available.front();
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const Kernels& one : available) names.emplace_back(one.name);
  return names;
}

bool use_instruction_set(const std::string& name) {
  for (const Kernels& one : available)
    if (name == one.name) {
      in_use = &one;
      return true;
    }
  return false;
}

}  // namespace regard
