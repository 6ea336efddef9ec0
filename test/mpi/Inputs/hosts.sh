#!/bin/sh
# SPDX-License-Identifier: MIT
# hosts.sh DELAY N PROGRAM...: runs N processes with mpirun on two hosts in turn, which are network and UTS
# namespaces of this machine with a link between them; each packet takes DELAY ms longer each way: by tc netem, or
# where the kernel has none by the program DELAY_LINK (../../tools/delay_link.c), which says what it held. Which of the
# two it was is told on standard error. DELAY 0: no such thing. With HOSTS_IPV6=1 the hosts have IPv6 addresses alone;
# with HOSTS_CLOCK=S the clock of the second is S seconds ahead, where the kernel has namespaces of time: "clock" on
# standard error says that it is.
# With HOSTS_TORCHRUN=1 the processes are started as torchrun does, rank i on host i % 2, without mpirun. Each host knows
# the first by name, pipehosta; the first itself, as Debian has it, by the address 127.0.1.1.
# `hosts.sh DELAY` alone tells by its exit status whether that is permitted here.
delay=$1 n=$2
shift
id=pipe$$ work=$(mktemp -d)
link= pids=
clean() {
  [ -z "$pids" ] || { kill $pids; wait; } 2>/dev/null
  [ -z "$link" ] || { kill "$link" && wait "$link"; cat "$work/link" >&2; }
  ip netns del ${id}a 2>/dev/null
  ip netns del ${id}b 2>/dev/null
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM
ip netns add ${id}a && ip netns add ${id}b || exit 1
tun() {
  [ -n "$DELAY_LINK" ] || exit 1
  "$DELAY_LINK" ${id}a ${id}b "$delay" > "$work/link" &
  link=$!
  until grep -q ready "$work/link"; do
    kill -0 "$link" || exit 1
    sleep 0.02
  done
  echo delay_link >&2
}
wire() {
  ip link add veth0 netns ${id}a type veth peer name veth0 netns ${id}b || exit 1
  [ "$delay" != 0 ] || return 0
  for net in ${id}a ${id}b; do
    ip netns exec $net tc qdisc add dev veth0 root netem delay "${delay}ms" 2>/dev/null || return 1
  done
  echo netem >&2
}
wire || { ip -n ${id}a link del veth0 && tun; }
if [ -n "$HOSTS_IPV6" ]; then at=fd77::,/64 options=nodad; else at=10.77.0.,/24 options=; fi
for host in a:1 b:2; do
  net=$id${host%:*}
  ip -n $net addr add ${at%,*}${host#*:}${at#*,} dev veth0 $options && ip -n $net link set veth0 up && ip -n $net link set lo up || exit 1
done
[ $# -gt 0 ] || exit 0
shift
clock=
if [ -n "$HOSTS_CLOCK" ] && unshare --fork --time --monotonic 1 true 2>/dev/null; then
  clock="unshare --fork --time --monotonic $HOSTS_CLOCK --"
  echo clock >&2
fi
if [ -n "$HOSTS_TORCHRUN" ]; then
  echo "127.0.1.1 pipehosta" > "$work/hosts.a"
  echo "${at%,*}1 pipehosta" > "$work/hosts.b"
  for rank in $(seq 0 $((n - 1))); do
    host=a
    [ $((rank % 2)) = 0 ] || host=b
    RANK=$rank WORLD_SIZE=$n LOCAL_RANK=$((rank / 2)) MASTER_ADDR=pipehosta MASTER_PORT=29500 \
      ip netns exec $id$host unshare --uts --mount sh -c 'mount --bind "$0" /etc/hosts && hostname "pipehost$1" && shift && exec "$@"' \
      "$work/hosts.$host" $host "$@" &
    pids="$pids $!"
  done
  status=0
  for pid in $pids; do wait "$pid" || status=$?; done
  pids=
  exit $status
fi
# What starts a daemon on the other host: agent HOST COMMAND...
cat > "$work/agent" <<END
#!/bin/sh
shift
exec ip netns exec ${id}b $clock unshare --uts sh -c 'hostname pipehostb; exec sh -c "\$0"' "\$*"
END
chmod +x "$work/agent"
TMPDIR=$work ip netns exec ${id}a unshare --uts sh -c 'hostname pipehosta; exec "$@"' sh \
  mpirun --mca plm_rsh_agent "$work/agent" --mca btl self,tcp --mca btl_tcp_if_include veth0 \
  --mca oob_tcp_if_include veth0 --host pipehosta:8,pipehostb:8 --map-by node -np "$n" "$@"
