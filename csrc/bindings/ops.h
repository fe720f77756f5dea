#pragma once

#include "bindings/arrays.h"
#include "ops/params.h"

namespace regard {

void run_op(const OpParams&);

}  // namespace regard
