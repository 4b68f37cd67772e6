// SPDX-License-Identifier: BSD-2-Clause
// A C++ program as real_programs_test.sh runs it: containers, strings, threads,
// exceptions across threads, aligned new, a failing new. Prints what must be
// equal under every malloc.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace
{

struct alignas(256) Wide {
	unsigned char bytes[256];
};

std::uint64_t mix(std::uint64_t value)
{
	value ^= value >> 33;
	value *= 0xff51afd7ed558ccdull;
	value ^= value >> 33;
	return value;
}

std::uint64_t use_containers(unsigned seed)
{
	std::map<std::string, std::vector<int>> by_name;
	std::unordered_map<std::uint64_t, std::string> by_key;
	std::list<std::unique_ptr<std::string>> texts;
	std::deque<std::uint64_t> window;
	std::multiset<std::uint64_t> ordered;
	std::uint64_t sum = 0;

	for (unsigned i = 0; i < 20000; i++) {
		std::uint64_t value = mix(i * 31 + seed);

		by_name["name " + std::to_string(value % 500)].push_back(static_cast<int>(i));
		by_key[value % 3000] = std::string(value % 300, 'x');
		texts.push_back(std::make_unique<std::string>(value % 100, 'y'));
		if (texts.size() > 1000)
			texts.pop_front();
		window.push_back(value);
		if (window.size() > 777)
			window.pop_front();
		ordered.insert(value % 1000);
		if (ordered.size() > 300)
			ordered.erase(ordered.begin());
	}
	for (const auto &[name, numbers] : by_name)
		sum += name.size() * std::accumulate(numbers.begin(), numbers.end(), std::uint64_t{0});
	for (const auto &[key, text] : by_key)
		sum += key * text.size();
	for (const auto &text : texts)
		sum += text->size();
	return sum + window.front() + *ordered.rbegin();
}

std::string throw_deep(int depth)
{
	std::string local(static_cast<std::size_t>(depth) * 10, 'z');

	if (depth == 0)
		throw std::runtime_error("from the bottom");
	return throw_deep(depth - 1) + local;
}

int count_exceptions()
{
	int caught = 0;

	for (int i = 0; i < 500; i++) {
		try {
			throw_deep(20);
		} catch (const std::exception &) {
			caught++;
		}
	}
	return caught;
}

bool is_aligned_new_right()
{
	std::vector<std::unique_ptr<Wide>> wides;

	for (int i = 0; i < 1000; i++) {
		wides.push_back(std::make_unique<Wide>());
		if (reinterpret_cast<std::uintptr_t>(wides.back().get()) % alignof(Wide))
			return false;
	}
	return true;
}

bool does_large_new_throw()
{
	volatile std::size_t bytes = SIZE_MAX / 4;

	try {
		operator delete(operator new(bytes));
	} catch (const std::bad_alloc &) {
		return operator new(bytes, std::nothrow) == nullptr;
	}
	return false;
}

} // namespace

int main()
{
	std::vector<std::future<std::uint64_t>> results;
	std::vector<std::thread> threads;
	std::mutex mutex;
	std::uint64_t total = 0;
	int caught = 0;

	for (unsigned i = 0; i < 4; i++)
		results.push_back(std::async(std::launch::async, use_containers, i));
	for (auto &result : results)
		std::printf("containers %ju\n", static_cast<std::uintmax_t>(result.get()));
	for (unsigned i = 0; i < 100; i++)
		threads.emplace_back([&mutex, &total, i] {
			std::vector<std::uint64_t> numbers(1000 + i);
			std::iota(numbers.begin(), numbers.end(), i);
			std::lock_guard<std::mutex> guard(mutex);
			total += std::accumulate(numbers.begin(), numbers.end(), std::uint64_t{0});
		});
	for (auto &thread : threads)
		thread.join();
	std::printf("threads %ju\n", static_cast<std::uintmax_t>(total));
	try {
		std::async(std::launch::async, [] { return throw_deep(50); }).get();
	} catch (const std::exception &error) {
		std::printf("across threads: %s\n", error.what());
	}
	threads.clear();
	for (int i = 0; i < 4; i++)
		threads.emplace_back([&mutex, &caught] {
			int mine = count_exceptions();
			std::lock_guard<std::mutex> guard(mutex);
			caught += mine;
		});
	for (auto &thread : threads)
		thread.join();
	std::printf("exceptions %d\n", caught);
	std::printf("aligned new %d, large new throws %d\n", is_aligned_new_right(), does_large_new_throw());
	return 0;
}
