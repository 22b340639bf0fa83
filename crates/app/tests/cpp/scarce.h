// See scarce.cc.
#pragma once

// Allocations of this thread that succeed before one throws bad_alloc; below 0: all. That many of the commands' own is
// the number in the environment variable ALLOCATIONS.
extern thread_local long allocations_left;
