/* SPDX-License-Identifier: BSD-2-Clause */
/* One measured run, from its settings to its profile; see session.h. */
#include "cli/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc/settings.h"
#include "cli/binary.h"
#include "cli/cmd.h"
#include "cli/host.h"
#include "cli/msg.h"
#include "cli/options.h"
#include "cli/preload.h"

static int out_of_memory(void)
{
	msg__error("out of memory");
	return AT_EXIT_OWN;
}

/* Empty is as good as unset. */
static const char *get_setting(const struct environment *environment, const char *name)
{
	const char *value = environment__get(environment, name);

	return value && *value ? value : NULL;
}

/* Settings of the allocator, from the options or else from the environment, and what the profile says of them. */
static int choose_settings(struct session_run *run)
{
	struct session_config *opts = &run->config;
	struct profile *profile = run->profile;
	bool is_bundled = strcmp(opts->allocator, PRELOAD_BUNDLED) == 0;
	uint64_t tune[ATM_TUNE_CNT];
	size_t bytes;

	if (!is_bundled && (opts->policy || opts->tune)) {
		msg__error("%s is for the bundled allocator only, not for %s", opts->policy ? "--policy" : "--tune",
			   opts->allocator);
		return AT_EXIT_USAGE;
	}
	bytes = strlen(opts->allocator); /* the end of a long path says more than its start */
	snprintf(profile->allocator, sizeof(profile->allocator), "%s",
		 opts->allocator + (bytes < sizeof(profile->allocator) ? 0 : bytes - sizeof(profile->allocator) + 1));
	if (!is_bundled)
		return 0;
	if (!opts->policy)
		opts->policy = get_setting(&run->environment, ATM_POLICY_ENV);
	if (!opts->tune)
		opts->tune = get_setting(&run->environment, ATM_TUNE_ENV);
	profile->policy = POLICY_ALL;
	if (opts->policy && options__policy(opts->policy, POLICY_ALL, &profile->policy))
		return AT_EXIT_USAGE;
	settings__tune_defaults(tune);
	if (opts->tune && options__tune(opts->tune, tune))
		return AT_EXIT_USAGE;
	if (opts->tune) {
		profile->tune = strdup(opts->tune);
		if (!profile->tune)
			return out_of_memory();
	}
	profile->has_policy = true;
	return 0;
}

/* Preloads the allocator, where it can reach the program; says in the profile where it cannot. */
static int prepare_allocator(struct session *session, struct session_run *run)
{
	struct profile *profile = run->profile;
	struct binary_finding finding;
	char library[4096], policy[128];
	int status = preload__find(run->config.allocator, library, sizeof(library));

	if (status)
		return status;
	environment__unset(&run->environment, ATM_HANDOVER_ENV); /* of an alloctrace that we may run under */
	binary__inspect(command__file(&run->command), session->user.uid, session->user.gid, &finding);
	if (!finding.is_replaceable && (library[0] || finding.is_32bit))
		snprintf(profile->note, sizeof(profile->note), "%s%s%s", finding.why,
			 library[0] ? ": traced, but malloc is not replaced" : "",
			 profile->has_policy ? " and policies do not apply" : "");
	if (!finding.is_replaceable)
		profile->has_policy = false;
	if (!finding.is_replaceable || !library[0])
		return 0;
	if (profile->has_policy) {
		settings__format_policy(profile->policy, policy, sizeof(policy));
		if (environment__set(&run->environment, ATM_POLICY_ENV, policy) ||
		    (profile->tune && environment__set(&run->environment, ATM_TUNE_ENV, profile->tune)))
			return out_of_memory();
	}
	msg__info("preloading %s", library);
	return preload__set(&run->environment, library);
}

/* Callchains are made in the kernel, or not at all. */
static int check_callchains(const struct session *session)
{
	char advice[256];

	if (session->opts.callchains == CALLCHAINS_NONE || session->tier >= 1)
		return 0;
	feature__advice(&session->features, session->tier, advice, sizeof(advice));
	msg__error("callchains need kernel tracing, tier 1%s%s", advice[0] ? ": " : "", advice);
	return AT_EXIT_OWN;
}

int session__choose_tier(struct session *session)
{
	int wanted = session->opts.tier;
	char advice[256];

	feature__probe(&session->features);
	session->tier = session->features.best_tier;
	msg__info("tier %d can be had here", session->tier);
	if (wanted == SESSION_TIER_BEST)
		return check_callchains(session);
	if (wanted > session->tier) {
		feature__column(&session->features, FEATURE_COLUMN_BYSTANDERS, advice, sizeof(advice));
		msg__error("tier %d cannot be had here, %d can: %s", wanted, session->tier, advice + strlen("no: "));
		return AT_EXIT_OWN;
	}
	session->tier = wanted;
	return check_callchains(session);
}

/* Without the counters there is still the tracer: a failure is not the end. */
static void open_counters(struct session *session, struct session_run *run)
{
	struct counters_opts opts = {.uid = session->user.uid};
	int err;

	if (!run->profile->has_policy)
		return;
	err = counters__open(&run->counters, &opts);
	if (!err)
		err = environment__set(&run->environment, ATM_HANDOVER_ENV, counters__name(run->counters));
	if (err)
		msg__warn("the allocator's own counters are not available: %s", strerror(-err));
}

static int start_tracer(struct session *session, struct session_run *run)
{
	struct tracer_opts opts = {
		.is_following = session->opts.is_following,
		.slot_mode = session->opts.slot_mode,
		.is_measuring_bpf = session->opts.is_measuring_bpf,
		.ledgers = session->opts.ledgers,
		.callchains = session->opts.callchains,
		.tier = session->opts.tier == SESSION_TIER_BEST ? 0 : session->tier,
	};

	if (session->tier < 1)
		return 0;
	if (tracer__open(&run->tracer, &session->features, &opts) || tracer__add_target(run->tracer, run->target.pid))
		return AT_EXIT_OWN;
	tracer__expect(run->tracer, command__file(&run->command));
	if (tracer__start(run->tracer))
		return AT_EXIT_OWN;
	return 0;
}

static void serve_counters(void *data)
{
	counters__serve(data);
}

static int run_target(struct session_run *run)
{
	int fd = run->counters ? counters__fd(run->counters) : -1;
	int status = target__release(&run->target, run->command.argv[0]);
	int err;

	if (status)
		return status;
	err = target__wait(&run->target, fd, serve_counters, run->counters);
	if (!err)
		return 0;
	msg__error("cannot wait for the command: %s", strerror(-err));
	return AT_EXIT_OWN;
}

static uint64_t timeval_ns(struct timeval tv)
{
	return tv.tv_sec * 1000000000ull + tv.tv_usec * 1000ull;
}

static void fill_from_target(struct session_run *run)
{
	struct profile *profile = run->profile;
	const struct target *target = &run->target;

	profile->pid = target->pid;
	profile->has_exit = true;
	if (WIFSIGNALED(target->status))
		profile->exit_signal = WTERMSIG(target->status);
	else
		profile->exit_status = WEXITSTATUS(target->status);
	profile->wall_ns = target->end_ns - target->start_ns;
	profile->user_ns = timeval_ns(target->rusage.ru_utime);
	profile->sys_ns = timeval_ns(target->rusage.ru_stime);
	profile->max_rss_bytes = target->rusage.ru_maxrss * 1024ull;
	/* The kernel's peak leaves out what the counters of single CPUs hold back; the final reading does not. */
	if (profile->max_rss_bytes < profile->final_rss_bytes)
		profile->max_rss_bytes = profile->final_rss_bytes;
	profile->minor_fault_cnt = target->rusage.ru_minflt;
	profile->major_fault_cnt = target->rusage.ru_majflt;
}

static void fill_from_counters(struct session_run *run)
{
	struct profile *profile = run->profile;
	struct counters_result *result;

	if (!run->counters)
		return;
	result = calloc(1, sizeof(*result));
	if (!result)
		return;
	counters__finish(run->counters, result);
	profile->has_self_counts = result->process_cnt > 0;
	profile->self_process_cnt = result->process_cnt;
	profile->phases_seen |= result->phases_seen;
	for (int phase = 0; phase < AT_PHASE_CNT; phase++)
		profile->phases[phase].self = result->phases[phase];
	if (result->refused_cnt)
		msg__warn(
			"the own counters of %llu processes are missing: they ran as another user, or memory was short",
			(unsigned long long)result->refused_cnt);
	if (result->uncounted_heap_cnt)
		msg__warn("requests of %llu heaps are missing: a process had more than %d at once",
			  (unsigned long long)result->uncounted_heap_cnt, ATM_CELL_CNT);
	if (!result->process_cnt) {
		profile->has_policy = false;
		snprintf(profile->note, sizeof(profile->note),
			 "no process loaded the bundled allocator: policies do not apply (may its user read the "
			 "library?)");
	}
	free(result);
}

static int collect(struct session *session, struct session_run *run)
{
	if (run->tracer && (tracer__stop(run->tracer) || tracer__collect(run->tracer, run->profile)))
		return AT_EXIT_OWN;
	run->profile->has_trace = run->tracer;
	feature__advice(&session->features, session->tier, run->profile->advice, sizeof(run->profile->advice));
	host__fill(run->profile);
	fill_from_target(run);
	fill_from_counters(run);
	return 0;
}

static int fork_target(struct session *session, struct session_run *run)
{
	size_t cnt = 0;
	struct target_spec spec = {
		.paths = run->command.paths,
		.argv = run->command.argv,
		.envp = run->environment.vars,
		.user = &session->user,
		.stdin_fd = session->opts.stdin_fd,
		.stdout_fd = session->opts.stdout_fd,
	};

	while (run->command.argv[cnt])
		cnt++;
	run->profile->argv = calloc(cnt + 1, sizeof(char *));
	if (!run->profile->argv)
		return out_of_memory();
	for (size_t i = 0; run->command.argv[i]; i++)
		if (!(run->profile->argv[i] = strdup(run->command.argv[i])))
			return out_of_memory();
	/* The run before this one has left it ignored. */
	sigaction(SIGPIPE, &session->old_pipe, NULL);
	if (target__fork(&run->target, &spec)) {
		target__abort(&run->target);
		return AT_EXIT_OWN;
	}
	if (run->counters && !session->opts.is_following)
		counters__set_only_pid(run->counters, run->target.pid);
	return 0;
}

/* Everything between the fork and the profile; the child is gone when it returns. */
int session__run(struct session *session, struct session_run *run)
{
	int status;

	open_counters(session, run);
	status = fork_target(session, run);
	if (status)
		return status;
	status = start_tracer(session, run);
	if (!status)
		status = run_target(run);
	if (!status)
		status = collect(session, run);
	target__abort(&run->target);
	return status;
}

int session__prepare(struct session *session, const struct session_config *config, struct session_run *run)
{
	int status;

	*run = (struct session_run){.config = *config, .profile = profile__new()};
	if (!run->profile || environment__copy(&run->environment, environ))
		return out_of_memory();
	for (char *const *var = config->env; var && *var; var++) {
		size_t bytes = strcspn(*var, "=");
		char *name = strndup(*var, bytes);
		int err = name ? environment__set(&run->environment, name, *var + bytes + ((*var)[bytes] == '='))
			       : -ENOMEM;

		free(name);
		if (err)
			return out_of_memory();
	}
	status = choose_settings(run);
	if (!status)
		status = command__find(&run->command, config->words, !config->is_command);
	return status ? status : prepare_allocator(session, run);
}

int session__open(struct session *session, const struct session_opts *opts)
{
	*session = (struct session){.opts = *opts};
	sigaction(SIGPIPE, NULL, &session->old_pipe);
	return user__resolve(opts->user, &session->user) ? AT_EXIT_USAGE : 0;
}

void session__close(struct session *session)
{
	user__free(&session->user);
}

void session__free_run(struct session_run *run)
{
	tracer__free(run->tracer);
	counters__free(run->counters);
	profile__free(run->profile);
	command__free(&run->command);
	environment__free(&run->environment);
}
