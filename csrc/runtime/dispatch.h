// Selection of the instruction set at run time.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace regard {

const KernelTable& kernels();                  // of the instruction set in use, by default the best
std::vector<std::string> instruction_sets();   // supported by this processor, best first
bool use_instruction_set(const std::string&);  // for tests and benchmarks; false if not supported

}  // namespace regard
