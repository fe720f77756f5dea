#include "dispatch.h"

#include <atomic>

namespace regard {
namespace {

#define REGARD_TABLE(isa, name, lanes)                                                                \
  {name,             lanes,             isa::forward_tasks, isa::forward_scratch, isa::forward, isa::widened, \
   isa::few_scratch, isa::few_partials, isa::few,           isa::few_together,    isa::look_tasks,   \
   isa::look_scratch, isa::look,         isa::multiply_adds}

const std::vector<Kernels>& available() {
  static const std::vector<Kernels> all = [] {
    std::vector<Kernels> found;
#if defined(REGARD_X86)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
      found.push_back(REGARD_TABLE(avx512, "AVX-512", 16));
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
      found.push_back(REGARD_TABLE(avx2, "AVX2", 8));
#endif
#if defined(__aarch64__)
    found.push_back(REGARD_TABLE(generic, "NEON", 4));
#else
    found.push_back(REGARD_TABLE(generic, "generic", 4));
#endif
    return found;
  }();
  return all;
}

std::atomic<const Kernels*> in_use{nullptr};

}  // namespace

const Kernels& kernels() {
  const Kernels* chosen = in_use;
  return chosen ? *chosen : available().front();
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const Kernels& one : available()) names.emplace_back(one.name);
  return names;
}

bool use_instruction_set(const std::string& name) {
  for (const Kernels& one : available())
    if (name == one.name) {
      in_use = &one;
      return true;
    }
  return false;
}

}  // namespace regard
