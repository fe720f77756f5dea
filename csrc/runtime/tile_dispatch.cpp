#include "runtime/tile_dispatch.h"

#include <atomic>

#include "runtime/dispatch.h"
#include "runtime/processor.h"
#if defined(REGARD_AMX)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace regard {
namespace {

#if defined(REGARD_AMX)
// Linux grants the registers on request, once for all threads.
bool is_amx_granted() {
  constexpr long ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}
#endif

#define REGARD_ENTRY_AMX(returned, name, arguments) , amx::name
#define REGARD_ENTRY_AVX512BF16(returned, name, arguments) , avx512bf16::name
#define REGARD_ENTRY_GENERIC(returned, name, arguments) , generic::name

struct Tables {
  std::vector<TileKernelTable> available;
  const TileKernelTable* preferred = nullptr;
};

const Tables& tables() {              // at the first call in bfloat16: until then the system is not asked for AMX
  static const Tables& found = *[] {  // never destroyed, as in dispatch.cpp
    Tables& tables = *new Tables;
    bool is_preferred = false;
#if defined(REGARD_AMX) || defined(REGARD_AVX512BF16)
    const Processor& processor = regard::processor();
#endif
#if defined(REGARD_AMX)
    if (processor.amx && is_amx_granted()) {
      tables.available.push_back(TileKernelTable{"AMX" REGARD_TILE_FUNCTIONS(REGARD_ENTRY_AMX)});
      is_preferred = true;
    }
#endif
#if defined(REGARD_AVX512BF16)
    // Zen 4 and 5 do twice as many multiply-adds in bfloat16 as in float32; Sapphire Rapids half as many.
    if (processor.avx512bf16) {
      tables.available.push_back(TileKernelTable{"AVX512-BF16" REGARD_TILE_FUNCTIONS(REGARD_ENTRY_AVX512BF16)});
      is_preferred = is_preferred || processor.is_amd;
    }
#endif
    tables.available.push_back(TileKernelTable{"C++" REGARD_TILE_FUNCTIONS(REGARD_ENTRY_GENERIC)});
    if (is_preferred) tables.preferred = &tables.available.front();  // memory that moves with the vector
    return &tables;
  }();
  return found;
}

std::atomic<const TileKernelTable*> chosen{nullptr};
std::atomic<bool> is_chosen{false};

}  // namespace

const TileKernelTable* tile_kernels() {
  if (is_chosen) return chosen;
  return kernels().name == instruction_sets().front() ? tables().preferred : nullptr;
}

std::vector<std::string> tile_implementations() {
  std::vector<std::string> names;
  for (const TileKernelTable& table : tables().available) names.emplace_back(table.name);
  names.emplace_back("float32");
  return names;
}

bool use_tiles(const std::string& name) {
  const TileKernelTable* wanted = nullptr;
  for (const TileKernelTable& table : tables().available)
    if (name == table.name) wanted = &table;
  if (!wanted && name != "float32" && name != "auto") return false;
  chosen = wanted;
  is_chosen = name != "auto";
  return true;
}

}  // namespace regard
