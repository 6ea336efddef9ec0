/* SPDX-License-Identifier: MIT
 * The data of the page. Each panel is a schedule: its JSON form (lang/spec.md 9) with facts derived from it. An
 * instruction keeps its fields and also has: panel, kind ("F"), label (microbatch), comm, nth (place in its stream),
 * chunk. A track has the times of the compute ops of each rank: predicted, or measured. */
'use strict';

/* Unpacks the data of emit_html.c: [v, v, ..., n] is an object with the keys shapes[n]; n = -1: a list. */
function unpack(v, shapes) {
  if (!Array.isArray(v))
    return v;
  const keys = shapes[v.pop()];
  for (let i = 0; i < v.length; i++)
    if (typeof v[i] === 'object')
      v[i] = unpack(v[i], shapes);
  if (!keys)
    return v;
  const o = {};
  for (let i = 0; i < keys.length; i++)
    o[keys[i]] = v[i];
  return o;
}

const doc = JSON.parse(document.getElementById('data').textContent);
const kinds = new Map(doc.ops.map((k, i) => [k.op, Object.assign(k, {index: i, used: false})]));
const none = Object.freeze([]);
/* kind of a side op, by stream */
const SIDE = {compute: 'SIDE', comm: 'SIDE_COMM', copy: 'SIDE_COPY'};
const panels = doc.panels.map(makePanel);

/* Scales the times of the form that the page shows. */
function scaleTimes(form, by) {
  for (const [of, keys] of [[form, ['makespan', 'span', 'ideal']], [form.bound, ['makespan', 'span']],
    ...form.rank.map(r => [r.idle, Object.keys(r.idle)]), ...form.rank.flatMap(r => r.instr.map(i => [i, ['start', 'end']]))])
    for (const k of keys)
      of[k] *= by;
}

/* A stream of a rank, or a channel of its comm stream. */
function queueOf(stream, channel) {
  return channel === undefined ? stream : `${stream} ${channel}`;
}

function makePanel(packed, index) {
  const form = unpack(packed.form, packed.shapes);
  if (packed.scale !== 1)
    scaleTimes(form, packed.scale);
  const p = {
    form, index, scale: packed.scale, sources: packed.sources, timed: form.timed === 1, byName: new Map(), tracks: [],
    queues: [], compute: [], comm: [], copy: [], lane: [], kindOf: [], chunkOf: [], chunks: 1, deps: false, pairs: null, curves: null, path: null,
    title: form.params ? form.schedule + ' ' + form.params : form.schedule,
  };
  for (const s of form.stages)
    p.chunks = Math.max(p.chunks, s.chunk + 1);
  for (const rank of form.rank) {
    const streams = new Map(), queues = new Map();
    const add = (lists, key, i) => lists.has(key) ? lists.get(key).push(i) : lists.set(key, [i]);
    for (const i of rank.instr) {
      const side = i.side === undefined ? null : SIDE[form.sides[i.side].stream];
      const [, kind, label] = side ? [i.op, side, i.mb === undefined ? 'S' : String(i.mb)] : /^\d+([A-Z_]+)(.*)$/.exec(i.op);
      const k = kinds.get(kind);
      i.panel = p, i.rank = rank.rank, i.kind = k, i.label = label;
      i.comm = k.stream !== 'COMPUTE';
      i.chunk = form.stages[i.stage].chunk;
      i.from = i.to = none;
      add(streams, k.stream, i);
      i.nth = streams.get(k.stream).length - 1;
      add(queues, queueOf(k.stream.toLowerCase(), i.channel), i);
      p.byName.set(i.op, i);
      k.used ||= k.stream !== 'COMM' || side !== null;
    }
    const ops = streams.get('COMPUTE') || [];
    p.queues.push(queues);
    p.compute.push(ops);
    p.kindOf.push(Uint8Array.from(ops, i => i.kind.index));
    p.chunkOf.push(Uint8Array.from(ops, i => i.mb === undefined ? 0 : i.chunk));
    p.comm.push(streams.get('COMM') || []);
    p.copy.push(streams.get('COPY') || []);
    const lane = p.copy[rank.rank].concat(p.comm[rank.rank].filter(i => i.side !== undefined)).sort((a, b) => a.start - b.start);
    p.lane.push({ops: lane, start: Float64Array.from(lane, i => i.start), longest: lane.reduce((m, i) => Math.max(m, i.end - i.start), 0)});
    p.lanes ||= lane.length > 0;
  }
  p.letters = p.compute.flat().reduce((n, i) => Math.max(n, i.label.length), 1);
  p.tracks.push(makeTrack(p, 'predicted', p.timed, 1, i => [i.start, i.end]));
  return p;
}

/* Copies and side ops: they run beside the ops, and may begin or end a step. */
function beside(p) {
  return p.lane.flatMap(l => l.ops);
}

/* time(i): start and end of a compute op, in ns or units; factor: from this unit to that of the prediction. Ops of
 * one action overlap: lane 1 is drawn under lane 0; lane 2: the op has the row to itself. */
function makeTrack(p, name, timed, factor, time) {
  const t = {panel: p, name, timed, factor, start: [], end: [], lane: [], begin: Infinity, last: 0, busy: 0, shortest: Infinity};
  for (const ops of p.compute) {
    const a = new Float64Array(ops.length), b = new Float64Array(ops.length), lane = new Uint8Array(ops.length).fill(2);
    let free = -Infinity;
    ops.forEach((i, k) => {
      [a[k], b[k]] = time(i).map(v => v * factor);
      if (a[k] < free && k > 0) {
        if (lane[k - 1] === 2)
          lane[k - 1] = 0;
        lane[k] = 1 - lane[k - 1];
      } else {
        t.busy += b[k] - a[k];
      }
      free = Math.max(free, b[k]);
      t.begin = Math.min(t.begin, a[k]), t.last = Math.max(t.last, b[k]);
      if (b[k] > a[k])
        t.shortest = Math.min(t.shortest, b[k] - a[k]);
    });
    t.start.push(a), t.end.push(b), t.lane.push(lane);
  }
  for (const i of beside(p)) {
    const [a, b] = time(i).map(v => v * factor);
    t.begin = Math.min(t.begin, a), t.last = Math.max(t.last, b);
  }
  t.makespan = t.last > t.begin ? t.last - t.begin : 0;
  t.bubble = t.makespan ? 1 - t.busy / (t.makespan * p.compute.length) : 0;
  return t;
}

/* ---- data dependences: from[] and to[] of every instruction of a panel ---- */

function link(a, b) {
  if (!a || a === b || b.from.includes(a))
    return;
  a.to === none ? a.to = [b] : a.to.push(b);
  b.from === none ? b.from = [a] : b.from.push(a);
}

/* Each list is in an order in which its rank could run it alone, so an op reads what was last written to its slot.
 * Transfers of a rank pair and direction match in order. */
function findDeps(p) {
  if (p.deps)
    return;
  p.deps = true;
  const grads = new Map();
  for (const rank of p.form.rank) {
    const wrote = new Map(), holds = new Map(), back = new Map(), taken = new Map();
    for (const i of rank.instr) {
      for (const slot of i.ins || (i.in === undefined ? none : [i.in]))
        link(wrote.get(slot), i);
      for (const cls of ['act', 'gout', 'keep']) {
        if (i[cls] === undefined)
          continue;
        const slot = cls === 'keep' ? `keep ${i.kind.stream} ${i.keep}` : i[cls];
        if (cls === 'keep' ? !holds.has(slot) : i.kind[cls] > 0)
          holds.set(slot, i);
        else
          link(holds.get(slot), i);
        if (cls === 'keep' && holds.get(slot) !== i)
          holds.delete(slot);
      }
      for (const slot of i.outs || (i.out === undefined ? none : [i.out]))
        wrote.set(slot, i);
      /* the slice before it, in its direction */
      if (i.slice !== undefined && 'FBI'.includes(i.kind.op)) {
        const other = i.slice + (i.kind.op === 'F' ? -1 : 1);
        for (const kind of i.kind.op === 'F' ? 'F' : 'BI')
          link(p.byName.get(`${i.stage}${kind}${i.mb}.${other}`), i);
      }
      if (i.slice !== undefined && 'RBI'.includes(i.kind.op)) { /* recomputed stashes */
        const last = p.form.slices - 1;
        const made = i.kind.op === 'R' ? i.slice : i.slice === last ? last : 0;
        for (let q = 0; q < made; q++)
          link(p.byName.get(`${i.stage}R${i.mb}.${q}`), i);
        if (i.kind.op === 'R' && i.slice < last)
          link(p.byName.get(`${i.stage}F${i.mb}.${last}`), i);
      }
      /* The first op that reads a stash from host memory waits for its LOAD: its own op, or one of a later slice. */
      const unit = `${i.stage} ${i.mb}`;
      if (i.kind.op === 'LOAD' && i.slice !== undefined)
        back.set(unit, [...back.get(unit) || none, i]);
      if (i.slice !== undefined && 'RBIW'.includes(i.kind.op) && back.has(unit)) {
        const reads = l => i.slice === l.slice ? i.kind.op !== 'R' : i.slice > l.slice && i.kind.op !== 'W';
        back.get(unit).filter(reads).forEach(l => link(l, i));
        back.set(unit, back.get(unit).filter(l => !reads(l)));
      }
      if (i.before !== undefined)
        link(i, p.compute[rank.rank][i.before]);
      if (i.gives !== undefined)
        link(taken.get(i.gives), i);
      if (i.takes !== undefined)
        taken.set(i.takes, i);
      if (i.side !== undefined)
        continue;
      if (i.kind.op === 'U' || (i.comm && i.peer === undefined && i.act === undefined))
        link(grads.get(i.stage), i);
      if (i.mb === undefined || i.kind.op === 'B' || i.kind.op === 'W')
        grads.set(i.stage, i);
    }
  }
  for (const t of findPairs(p))
    link(t.send, t.recv);
}

/* Transfers, sorted by start. */
function findPairs(p) {
  if (p.pairs)
    return p.pairs;
  const sent = new Map();
  const each = (what, f) => p.comm.forEach(list => list.forEach(i => i.kind.op.startsWith(what) && f(i)));
  const queue = (a, b) => {
    const key = a + ' ' + b;
    if (!sent.has(key))
      sent.set(key, {list: [], next: 0});
    return sent.get(key);
  };
  each('SEND', i => queue(i.rank, i.peer).list.push(i));
  p.pairs = [];
  each('RECV', i => {
    const q = queue(i.peer, i.rank), send = q.list[q.next++];
    p.pairs.push({send, recv: i, start: send.start, end: i.end});
  });
  p.pairs.sort((a, b) => a.start - b.start);
  p.longest = p.pairs.reduce((m, t) => Math.max(m, t.end - t.start), 0);
  return p.pairs;
}

/* The compute ops at the other ends of i's tensors and stashes, and the transfers between. way: 'from' or 'to'. */
function neighbours(i, way) {
  findDeps(i.panel);
  const ops = [], transfers = [];
  const walk = j => {
    for (const k of j[way])
      if (k.comm)
        transfers.push(k), walk(k);
      else if (!ops.includes(k))
        ops.push(k);
  };
  walk(i);
  return {ops, transfers};
}

/* Of the instructions that i waits for, the last to end; undefined: i waits for its queue alone. */
function awaited(i) {
  const queues = i.panel.queues[i.rank];
  return (i.waits || none).filter(w => w.count > 0).map(w => queues.get(queueOf(w.stream, w.channel))[w.count - 1])
    .sort((a, b) => b.end - a.end)[0];
}

function criticalPath(p) {
  p.path ||= new Set(p.form.critical_path.map(c => p.byName.get(c.op)));
  return p.path;
}

/* ---- memory: of each rank, level[k] bytes (or stashes) from at[k] on ---- */

const round64 = n => Math.ceil(n / 64) * 64;

/* A stash lives from the start of the op that takes its slot to the end of the last op that names the slot before
 * another op takes it. */
function findCurves(p) {
  if (p.curves)
    return p.curves;
  p.curves = p.form.rank.map(rank => {
    const sized = p.form.sized === 1, size = new Map(), change = [];
    let base = sized ? rank.bytes.total : 0;
    for (const q of rank.pools)
      if (q.class === 'act' || q.class === 'gout' || q.class === 'keep' || q.class === 'buffer') {
        base -= sized ? q.count * round64(q.bytes) : 0;
        for (let slot = q.first; slot < q.first + q.count; slot++)
          size.set(slot, sized ? round64(q.bytes) : q.class === 'act' ? 1 : 0);
      }
    const last = new Map(), slices = p.form.slices, units = new Map();
    const giveBack = slot => last.has(slot) && change.push({at: last.get(slot), by: -size.get(slot)});
    for (const i of rank.instr) {
      if (i.takes !== undefined)
        change.push({at: i.start, by: size.get(i.takes)}), last.set(i.takes, Infinity);
      if (i.gives !== undefined)
        change.push({at: i.end, by: -size.get(i.gives)}), last.delete(i.gives);
      for (const cls of ['act', 'gout', 'keep']) {
        if (i[cls] === undefined || (cls === 'keep' && i.kind.stream !== 'COMPUTE'))
          continue;
        if (cls === 'keep' ? i.kind.op === 'F' : i.kind[cls] > 0) {
          giveBack(i[cls]);
          change.push({at: i.start, by: size.get(i[cls])});
        }
        last.set(i[cls], i.end);
        /* the last slice reads the stashes of all slices */
        if (i.kind.op === 'F' && slices > 1 && cls === 'act') {
          const unit = q => `${i.stage} ${i.mb} ${q}`;
          if (p.form.forward || i.keep !== undefined)
            units.set(unit(i.slice), i.act);
          for (let q = 0; i.slice === slices - 1 && q < slices; q++)
            if (units.has(unit(q)))
              last.set(units.get(unit(q)), i.end);
        }
      }
    }
    /* a buffer that is never given back stays */
    [...last.keys()].filter(slot => last.get(slot) < Infinity).forEach(giveBack);
    change.sort((a, b) => a.at - b.at || a.by - b.by);
    const at = [0], level = [base];
    for (const c of change) {
      const k = at.length - 1;
      if (c.at === at[k])
        level[k] += c.by;
      else
        at.push(c.at), level.push(level[k] + c.by);
    }
    const bound = sized ? doc.limit || rank.bytes.total : rank.inflight;
    return {at: Float64Array.from(at), level: Float64Array.from(level), base, bound, peak: level.reduce((a, b) => Math.max(a, b))};
  });
  return p.curves;
}

/* ---- a trace that was measured ---- */

/* Reads the measured steps of a trace file, each {panel, track}. Throws an Error that says what is wrong. */
function readTrace(text, name) {
  const fail = why => { throw new Error(`${name} ${why}`); };
  let json;
  try {
    json = JSON.parse(text);
  } catch (e) {
    fail(`is not JSON: ${e.message}`);
  }
  const events = Array.isArray(json) ? json : json && json.traceEvents;
  if (!Array.isArray(events))
    fail('is not a trace: it has no traceEvents');
  const groups = new Map(), names = new Map();
  for (const e of events) {
    if (!e || typeof e !== 'object')
      fail('is not a trace: an event is not an object');
    if (e.ph === 'M' && e.name === 'process_name' && e.args)
      names.set(e.pid, String(e.args.name));
    if (e.ph !== 'X')
      continue;
    if (![e.ts, e.dur, e.args && e.args.rank].every(v => Number.isFinite(v) && v >= 0))
      fail('is not a trace of ours: an event lacks ts, dur or rank');
    if (!groups.has(e.pid))
      groups.set(e.pid, []);
    const steps = groups.get(e.pid), step = e.args.step;
    if (!Number.isInteger(step) || step < 0 || step > 1e6)
      fail(`has a step ${step}`);
    (steps[step] ||= new Map()).set(e.args.rank + ' ' + e.name, e);
  }
  if (!groups.size)
    fail('has no events with a duration');
  const pid = [...groups.keys()].find(k => names.get(k) === 'Measured') ?? [...groups.keys()][0];
  const steps = groups.get(pid).filter(s => s), hash = json.otherData && json.otherData.hash;
  const order = [...panels].sort((a, b) => (b.form.hash === hash) - (a.form.hash === hash));
  const lacks = p => p.compute.flat().concat(beside(p)).find(i => steps.some(s => !s.has(i.rank + ' ' + i.op)));
  const more = p => [...steps[0].keys()].map(k => k.split(' ')[1]).find(op => !p.byName.has(op));
  const panel = order.find(p => !lacks(p) && !more(p));
  if (!panel) {
    const of = json.otherData ? ` of ${json.otherData.schedule} ${json.otherData.params}` : '';
    const i = lacks(order[0]);
    fail(`is a trace${of}, not of ${panels.map(p => p.title).join(' or ')}: ` +
         (i ? `${i.op} of rank ${i.rank} is not in it` : `${more(order[0])} is only in the trace`));
  }
  return steps.map((s, k) => {
    const of = i => s.get(i.rank + ' ' + i.op);
    const zero = panel.compute.flat().concat(beside(panel)).reduce((m, i) => Math.min(m, of(i).ts), Infinity);
    const time = i => [(of(i).ts - zero) * 1e3, (of(i).ts - zero + of(i).dur) * 1e3];
    const plain = makeTrack(panel, 'measured', true, 1, time);
    const factor = panel.timed || !plain.busy ? 1 : panel.tracks[0].busy / plain.busy;
    return {panel, step: k, same: panel.form.hash === hash,
            track: factor === 1 ? plain : makeTrack(panel, 'measured', true, factor, time)};
  });
}

/* ---- numbers ---- */

function digits(v, n) {
  return v === 0 ? '0' : String(Number(Math.abs(v) >= 10 ** n ? Math.round(v) : v.toPrecision(n)));
}

function timeUnit(v, timed) {
  if (!timed)
    return {per: 1, name: 'units'};
  return [{per: 1e9, name: 's'}, {per: 1e6, name: 'ms'}, {per: 1e3, name: 'us'}].find(u => v >= u.per) || {per: 1, name: 'ns'};
}

function timeText(v, timed, n = 6) {
  const u = timeUnit(Math.abs(v), timed);
  return digits(v / u.per, n) + (timed ? ' ' + u.name : '');
}

function byteText(v) {
  const u = [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']].find(([per]) => v >= per) || [1, 'B'];
  return digits(v / u[0], 4) + ' ' + u[1];
}
