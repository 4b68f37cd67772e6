// SPDX-License-Identifier: BSD-2-Clause
// C++ with a known caller at every level: usage: chain_cxx SCENARIO. Each makes 13 calls of madvise(MADV_NOHUGEPAGE).
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <vector>

#define END __asm__ volatile("" ::: "memory")

namespace chain
{

enum { CALL_CNT = 13, PAGE_BYTES = 4096 };
static char *page;

__attribute__((noinline, noclone)) static void inner()
{
	for (int i = 0; i < CALL_CNT; i++)
		madvise(page, PAGE_BYTES, MADV_NOHUGEPAGE);
	END;
}

struct Guard {
	__attribute__((noinline, noclone)) ~Guard()
	{
		inner();
		END;
	}
};

__attribute__((noinline, noclone)) static void thrower(int value)
{
	Guard guard;

	if (value)
		throw value;
	END;
}

// The destructor runs while the exception is on its way.
__attribute__((noinline, noclone)) static void unwinding()
{
	try {
		thrower(1);
	} catch (int) {
		END;
	}
}

__attribute__((noinline, noclone)) static void catching()
{
	try {
		throw 1;
	} catch (int) {
		inner();
		END;
	}
}

template <typename T> struct Sorter {
	__attribute__((noinline, noclone)) void sort(std::vector<T> &values)
	{
		bool has_called = false;

		std::sort(values.begin(), values.end(), [&has_called](T a, T b) {
			if (!has_called) {
				has_called = true;
				inner();
			}
			return a < b;
		});
		END;
	}
};

} // namespace chain

int main(int argc, char **argv)
{
	using namespace chain;
	const char *scenario = argc > 1 ? argv[1] : "";
	std::vector<int> values{5, 3, 1, 4, 2};

	page = static_cast<char *>(
		mmap(nullptr, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	if (strcmp(scenario, "unwinding") == 0)
		unwinding();
	else if (strcmp(scenario, "catching") == 0)
		catching();
	else if (strcmp(scenario, "sorting") == 0)
		Sorter<int>().sort(values);
	else
		return 2;
	return 0;
}
