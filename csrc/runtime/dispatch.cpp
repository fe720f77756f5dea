#include "runtime/dispatch.h"

#include <atomic>

#include "runtime/processor.h"

namespace regard {
namespace {

#define REGARD_ENTRY_AVX512VNNI(returned, name, arguments) , avx512vnni::name
#define REGARD_ENTRY_AVX512(returned, name, arguments) , avx512::name
#define REGARD_ENTRY_AVX2(returned, name, arguments) , avx2::name
#define REGARD_ENTRY_GENERIC(returned, name, arguments) , generic::name

const std::vector<KernelTable>& available = *[] {  // never destroyed: a daemon thread may call while the process exits
  auto& tables = *new std::vector<KernelTable>;
#if defined(REGARD_X86)
  if (processor().avx512vnni)
    tables.push_back(KernelTable{"AVX-512 VNNI", 16 REGARD_FUNCTIONS(REGARD_ENTRY_AVX512VNNI)});
  if (processor().avx512) tables.push_back(KernelTable{"AVX-512", 16 REGARD_FUNCTIONS(REGARD_ENTRY_AVX512)});
  if (processor().avx2) tables.push_back(KernelTable{"AVX2", 8 REGARD_FUNCTIONS(REGARD_ENTRY_AVX2)});
#endif
#if defined(__aarch64__)
  tables.push_back(KernelTable{"NEON", 4 REGARD_FUNCTIONS(REGARD_ENTRY_GENERIC)});
#else
  tables.push_back(KernelTable{"generic", 4 REGARD_FUNCTIONS(REGARD_ENTRY_GENERIC)});
#endif
  return &tables;
}();

std::atomic<const KernelTable*> active{nullptr};

}  // namespace

const KernelTable& kernels() {
  const KernelTable* chosen = active;
  return chosen ? *chosen : available.front();
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const KernelTable& table : available) names.emplace_back(table.name);
  return names;
}

bool use_instruction_set(const std::string& name) {
  for (const KernelTable& table : available)
    if (name == table.name) {
      active = &table;
      return true;
    }
  return false;
}

}  // namespace regard
