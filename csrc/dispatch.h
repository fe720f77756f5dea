// Which instruction set this processor has, and the functions compiled for it.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace regard {

const Kernels& kernels();                        // those in use: the best this processor can run
std::vector<std::string> instruction_sets();     // the names of those that it can run, best first
bool use_instruction_set(const std::string&);    // for tests and benchmarks; false where it cannot run

}  // namespace regard
