#include "runtime/tile_dispatch.h"

#include <atomic>

#include "runtime/dispatch.h"
#if defined(REGARD_AMX)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace regard {
namespace {

#if defined(REGARD_AMX)
// Whether the processor has AMX with bfloat16 and the tiles that bfloat16_tiles.h configures, and the system permits
// this process to use them. Linux grants the registers on request, once for all threads.
bool has_amx() {
  constexpr unsigned AMX_BF16 = 1u << 22, AMX_TILE = 1u << 24, OSXSAVE = 1u << 27;
  constexpr uint64_t TILE_STATE = uint64_t(3) << 17;  // XTILECFG and XTILEDATA
  constexpr long ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & OSXSAVE)) return false;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & AMX_BF16) || !(d & AMX_TILE)) return false;
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if (((uint64_t(high) << 32 | low) & TILE_STATE) != TILE_STATE) return false;
  // Palette 1: 8 tiles of 16 rows of 64 bytes.
  if (!__get_cpuid_count(0x1d, 1, &a, &b, &c, &d) || a >> 16 < 1024 || (b & 0xffff) < 64 || b >> 16 < 8 ||
      (c & 0xffff) < 16)
    return false;
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
    __builtin_cpu_init();
    const bool has_bf16 = instruction_sets().front() == "AVX-512" && __builtin_cpu_supports("avx512bf16");
#endif
#if defined(REGARD_AMX)
    if (has_bf16 && has_amx()) {
      tables.available.push_back(TileKernelTable{"AMX" REGARD_TILE_FUNCTIONS(REGARD_ENTRY_AMX)});
      is_preferred = true;
    }
#endif
#if defined(REGARD_AVX512BF16)
    // Zen 4 and 5 do twice as many multiply-adds in bfloat16 as in float32; Sapphire Rapids half as many.
    if (has_bf16) {
      tables.available.push_back(TileKernelTable{"AVX512-BF16" REGARD_TILE_FUNCTIONS(REGARD_ENTRY_AVX512BF16)});
      is_preferred = is_preferred || __builtin_cpu_is("amd");
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
