# What scripts/services and its drivers share; sourced. A driver sets dir, its directory of one instance, first.

# chosen_engine prints docker where a Docker engine answers and native elsewhere; SERVICES_ENGINE decides by hand, and
# what was started stays what it is.
chosen_engine() {
	if [[ -f $dir/engine ]]; then
		cat "$dir/engine"
	elif [[ -n ${SERVICES_ENGINE:-} ]]; then
		echo "$SERVICES_ENGINE"
	elif command -v docker >/dev/null && docker version --format '{{.Server.Version}}' >/dev/null 2>&1; then
		echo docker
	else
		echo native
	fi
}

# with_lock FILE COMMAND...: one process of this machine at a time. What the command starts does not inherit the lock.
# The file is gone afterwards, so that whoever waited for it looks whether it holds the present one.
with_lock() {
	local file=$1
	shift
	if ! command -v flock >/dev/null; then
		"$@"
		return
	fi
	(
		while :; do
			exec 9>"$file"
			flock 9
			[[ /proc/self/fd/9 -ef $file ]] && break
		done
		trap 'rm -f "$file"' EXIT
		"$@" 9>&-
	)
}

# free_port sets `free` to a port that nobody listens on and that no other instance has taken, not even for a node that
# is down at the moment, below the range from which the system takes ports for outgoing connections. The instance's
# name stands in a file named after the port, until release_ports.
taken_ports=${TMPDIR:-/tmp}/coordsvc-ports-$(id -u)
free_port() {
	local p holder
	while :; do
		p=$((20000 + RANDOM % 10000))
		(exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null && continue
		if holder=$(cat "$taken_ports/$p" 2>/dev/null); then
			# Nobody released the ports of an instance whose directory was removed by hand.
			[[ -d $holder ]] || rm -f "$taken_ports/$p"
			continue
		fi
		mkdir -p "$taken_ports"
		(set -o noclobber && echo "$dir" >"$taken_ports/$p") 2>/dev/null || continue
		free=$p
		return
	done
}

release_ports() {
	local file
	for file in "$taken_ports"/*; do
		[[ $(cat "$file" 2>/dev/null) != "$dir" ]] || rm -f "$file"
	done
	rmdir "$taken_ports" 2>/dev/null || true
}

random() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }
port() { sed -n "s/^$2=//p" "$dir/$1/ports"; }
running_nodes() { cat "$dir/nodes" 2>/dev/null || echo 0; }
opens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
container() { echo "coordsvc-$(basename "$dir")-$(cksum <<<"$dir" | cut -d' ' -f1)-$1"; }
container_runs() { [[ $(docker inspect -f '{{.State.Running}}' "$(container "$1")" 2>/dev/null) == true ]]; }

# out is true for a node that `kill` or `pause` took out on purpose: nobody waits for it to serve.
out() { [[ -e $dir/$1/out ]]; }

# until_true SECONDS COMMAND...: tries it ten times a second.
until_true() {
	local i tries=$(($1 * 10))
	shift
	for ((i = 0; i < tries; i++)); do
		if "$@"; then return 0; fi
		sleep 0.1
	done
	return 1
}

# signal_node N SIGNAL reaches the process or the container; a driver's `alive` says whether it is still the node's.
signal_node() {
	if [[ $(chosen_engine) == docker ]]; then
		case $2 in
		STOP) docker pause "$(container "$1")" >/dev/null ;;
		CONT) docker unpause "$(container "$1")" >/dev/null 2>&1 || true ;;
		*) docker kill --signal "$2" "$(container "$1")" >/dev/null 2>&1 || true ;;
		esac
	elif alive "$1"; then
		kill "-$2" "$(cat "$dir/$1/pid")" 2>/dev/null || true
	fi
}

dead() { ! alive "$1"; }

kill_node() {
	touch "$dir/$1/out"
	signal_node "$1" KILL
	until_true 10 dead "$1"
}

pause_node() {
	touch "$dir/$1/out"
	signal_node "$1" STOP
}

resume_node() {
	signal_node "$1" CONT
	rm -f "$dir/$1/out"
}

start_node() {
	rm -f "$dir/$1/out"
	start "$1"
}

# end_nodes asks all nodes to end, and makes them end after a while.
end_nodes() {
	local n
	for ((n = $(running_nodes); n >= 1; n--)); do
		signal_node "$n" TERM
		# A paused process takes the signal when it goes on.
		signal_node "$n" CONT
	done
	for ((n = $(running_nodes); n >= 1; n--)); do
		until_true 15 dead "$n" || { signal_node "$n" KILL && until_true 10 dead "$n"; }
		[[ $(chosen_engine) != docker ]] || docker rm -f "$(container "$n")" >/dev/null 2>&1 || true
	done
}
