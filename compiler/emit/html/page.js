/* SPDX-License-Identifier: MIT
 * Handles the pointer, keys, buttons and files, and writes the text beside the picture. Text from the data enters the
 * page as text only. */
'use strict';

for (const p of panels) {
  const bounds = p.form.rank.map(r => p.form.sized ? Math.max(doc.limit, r.bytes.total) : r.inflight);
  p.most = bounds.reduce((a, b) => Math.max(a, b), 1);
}

let asked = false;
function redraw() {
  if (asked)
    return;
  asked = true;
  requestAnimationFrame(() => {
    const dense = view.dense;
    asked = false;
    draw();
    if (view.dense !== dense)
      writeHead();
    const note = view.transfers && view.hidden && !$('status').dataset.said;
    if (note)
      $('status').textContent = 'Zoom in to see transfers.';
    else if (!$('status').dataset.said)
      $('status').textContent = '';
  });
}

/* The view moves; once it rests, the details left out for speed are drawn. */
function moved() {
  clearTimeout(view.moving);
  view.moving = setTimeout(() => { view.moving = 0; redraw(); }, 120);
  redraw();
}

function relayout() {
  const others = [...document.body.children].filter(e => e.tagName !== 'MAIN' && e.tagName !== 'DIALOG');
  const room = innerHeight - others.reduce((n, e) => n + e.offsetHeight, 0);
  layout($('stage').clientWidth, room);
  redraw();
}

function say(text, bad) {
  $('status').textContent = text;
  $('status').classList.toggle('bad', !!bad);
  text ? $('status').dataset.said = 1 : delete $('status').dataset.said;
}

/* ---- text ---- */

function element(tag, text, attributes) {
  return Object.assign(document.createElement(tag), {textContent: text ?? ''}, attributes);
}

function writeHead() {
  const one = panels.length === 1 && panels[0].form, count = (n, what) => `${n} ${what}${n === 1 ? '' : what.endsWith('h') ? 'es' : 's'}`;
  const heading = one ? panels[0].title : panels.map(p => p.form.schedule).join(' and ');
  document.title = $('title').textContent = heading;
  $('facts').textContent = one ? [count(one.ranks, 'rank'), count(new Set(one.stages.map(s => s.model)).size, 'stage'), count(one.microbatches, 'microbatch')].join(', ')
                               : panels.every(p => p.timed || p.scale === 1) ? 'on one time axis'
      : `on one time axis, scaled to equal work of the model: ${panels.map(p => `${p.form.schedule} \u00d7 ${digits(p.scale, 3)}`).join(', ')}`;
  const legend = $('legend');
  const key = (cls, text, fill) => {
    const swatch = element('i', '', {className: cls});
    if (fill)
      swatch.style.background = fill;
    const item = element('span');
    item.append(swatch, text);
    legend.append(item);
  };
  legend.textContent = '';
  const sides = op => [...new Set(panels.flatMap(p => (p.form.sides || none).filter(s => SIDE[s.stream] === op).map(s => s.side)))];
  for (const k of doc.ops)
    if (k.used)
      key('', `${sides(k.op).join(' ') || k.op} ${k.name}`, k.fill);
  key('idle', 'idle');
  const chunks = Math.max(...panels.map(p => p.chunks));
  if (chunks > 1)
    for (let c = 0; c < Math.min(chunks, 8); c++)
      key('', `chunk ${c}`, `linear-gradient(#93c0e8 ${100 - 24 * c / (chunks - 1)}%, #4a6074 0)`);
  if (view.transfers)
    key('arrow', 'transfer');
  if (view.memory) {
    const sized = panels.some(p => p.form.sized);
    if (sized)
      key('fixed', 'always there');
    key('live', sized ? 'stashes' : 'stashes alive');
    key('limit', sized && doc.limit ? `limit ${byteText(doc.limit)}` : 'proved');
  }
  if (view.critical || view.selected)
    key('path', 'on the critical path');
  const models = [...new Set(panels.map(p => p.form.channels))];
  let text = `Bubble: idle share of rank-time between the first start and the last end. Model: ${models.join('; ')}.`;
  for (const p of panels)
    if (p.form.ideal < p.form.makespan)
      text += ` With transfers that never wait ${panels.length > 1 ? p.form.schedule : 'the makespan'} is ${timeText(p.form.ideal, p.timed)}.`;
  text += ' Against the bounds of any order with the same places, costs and stashes: ' + panels.map(p => {
    const {bound, gap} = p.form, time = v => timeText(v, p.timed);
    const above = what => `${what} ${time(p.form[what])}, bound ${time(bound[what])} ` +
                          `(+${(100 * gap[what]).toFixed(gap[what] > 0 && gap[what] < 0.0995 ? 1 : 0)} %)`;
    return `${panels.length > 1 ? p.form.schedule + ' ' : ''}${above('makespan')}; ${above('span')}.`;
  }).join(' ');
  if (panels.some(p => p.tracks[1] && !p.timed)) {
    const p = panels.find(k => k.tracks[1] && !k.timed);
    text += ` One unit is drawn as ${timeText(1 / p.tracks[1].factor, true, 4)}, so that both are equally busy.`;
  }
  if (view.memory)
    text += panels.some(p => p.form.sized) ? ' Under each row: its memory over time.' : ' Under each row: its stashes alive over time.';
  if (view.dense)
    text += ' Ops narrower than a dot: each column shows the shares of its time.';
  $('caption').textContent = text;
  canvas.setAttribute('aria-label', `timeline: ${panels.map(p => `${p.title}, ${panelFacts(p)}`).join('; ')}`);
}

function sourceLine(i) {
  const [file, line] = i.at, text = i.panel.sources[file] ?? '';
  return {place: `${i.panel.form.files[file]}:${line}:${i.at[2]}`, text: text.split('\n')[line - 1] ?? '', file, line};
}

const slotNames = ['act', 'gout', 'keep', 'in', 'ins', 'out', 'outs', 'takes', 'gives'];
function slotText(i) {
  return slotNames.filter(n => i[n] !== undefined).map(n => `${n} ${i[n]}`).join(', ');
}

/* The version of its stage's weights that an op uses, if the program has versions. */
function versionText(i) {
  if (i.version === undefined)
    return '';
  const far = i.ahead ? `, ${i.ahead} update${i.ahead === 1 ? '' : 's'} before its gradient is applied` : '';
  const shared = i.weight === undefined ? ', as estimated before' : '';
  return `${i.kind.op === 'U' ? 'makes' : 'reads'} version ${i.version} of the weights${shared}${far}`;
}

/* The formulas for an op's weights or for an update, line by line as in a `weights` clause. */
function formulaLines(i) {
  const form = i.panel.form;
  if (i.formula === undefined)
    return [];
  if (i.kind.op !== 'U')
    return [`as ${form.formulas[i.formula]}`];
  const rule = form.rules[i.formula], line = (word, row) => row === undefined ? [] : [`${word} ${form.formulas[row]}`];
  return [...line('applies', rule.applies), ...line('rate', rule.rate),
    ...(rule.then ?? []).map(t => `then ${t.state} = ${form.formulas[t.formula]}`)];
}

function spanText(i, track) {
  if (i.comm)
    return `${timeText(i.start, i.panel.timed)} \u2013 ${timeText(i.end, i.panel.timed)}`;
  const a = track.start[i.rank][i.nth] / track.factor, b = track.end[i.rank][i.nth] / track.factor;
  return `${timeText(a, track.timed)} \u2013 ${timeText(b, track.timed)}`;
}

function showTip(x, y, title, lines, code) {
  const tip = $('tip');
  tip.replaceChildren(element('b', title), '\n' + lines.join('\n'));
  if (code)
    tip.append('\n', element('code', code));
  tip.hidden = false;
  const w = tip.offsetWidth, h = tip.offsetHeight, stage = $('stage');
  tip.style.left = clamp(x + 16 + w > view.width ? x - w - 12 : x + 16, 0, Math.max(0, view.width - w)) + 'px';
  tip.style.top = clamp(y + 18 + h > stage.clientHeight ? y - h - 12 : y + 18, 0, Math.max(0, stage.clientHeight - h)) + 'px';
}

/* What is at a point under the rows: a copy or side op. */
function hitLane(x, at) {
  const row = view.rows.find(r => r.first && r.panel.lanes && at >= r.foot && at < r.foot + COPY), t = timeAt(x), slack = 1 / view.px;
  const op = row && x >= view.left && row.panel.lane[row.rank].ops.find(i => t >= i.start - slack && t <= i.end + slack);
  return op ? {row, track: row.track, op} : null;
}

/* What is at a point: a row, and in it an op, or idle time before `next`. */
function hit(x, y) {
  const at = y + view.y, row = view.rows.find(r => at >= r.y && at < r.y + r.h);
  if (!row)
    return hitLane(x, at);
  const track = row.track, ops = row.panel.compute[row.rank], t = timeAt(x), slack = 1 / view.px;
  if (x < view.left)
    return {row};
  let k = after(track.start[row.rank], t) - 1;
  if (k >= 0 && track.lane[row.rank][k] !== 2 && track.lane[row.rank][k] !== (at - row.y < row.h / 2 ? 0 : 1))
    k = Math.max(0, k - 1);
  for (const near of [k, k + 1])
    if (near >= 0 && near < ops.length && t >= track.start[row.rank][near] - slack && t <= track.end[row.rank][near])
      return {row, track, op: ops[near]};
  return t < 0 || t > track.last ? {row} : {row, track, before: ops[k], next: ops[k + 1]};
}

function hover(x, y) {
  const h = hit(x, y), was = view.hover;
  view.hover = h && h.op ? h : null;
  if (view.hover?.op !== was?.op)
    redraw();
  if (!h)
    return void ($('tip').hidden = true);
  const p = h.row.panel, rank = p.form.rank[h.row.rank];
  if (h.op) {
    const i = h.op, s = sourceLine(i), wait = awaited(i);
    showTip(x, y, i.op, [
      `${h.track.name} ${spanText(i, h.track)}, ${i.phase}`,
      [slotText(i) && `slots ${slotText(i)}`, wait && `waits for ${wait.op}`].filter(Boolean).join('; ') || 'no slots, no wait',
      ...versionText(i) ? [versionText(i)] : [], ...formulaLines(i),
      s.place], s.text.trim().slice(0, 160));
  } else if (h.track) {
    const wait = h.next && awaited(h.next);
    showTip(x, y, 'idle', [h.next ? `until ${h.next.op}${wait ? `, which waits for ${wait.op}` : ''}` : 'after its last op']);
  } else {
    const idle = Object.entries(rank.idle).filter(([, v]) => v).map(([k, v]) => `${k} ${timeText(v, p.timed)}`).join(', ');
    showTip(x, y, `rank ${h.row.rank}`, [
      `stages ${p.form.stages.filter(s => s.rank === h.row.rank).map(s => s.stage).join(', ')}`,
      `idle: ${idle || 'none'}`, `in flight ${rank.inflight}, held ${rank.held}`,
      ...(rank.bytes ? [`memory ${byteText(rank.bytes.total)}`] : [])]);
  }
}

/* ---- selection ---- */

function select(i) {
  const shown = !$('side').hidden;
  view.selected = i;
  $('side').hidden = !i;
  if (i)
    writeSide(i);
  writeHead();
  shown === !i ? relayout() : redraw();
}

function writeSide(i) {
  const what = $('what'), s = sourceLine(i), from = neighbours(i, 'from'), to = neighbours(i, 'to');
  const row = (name, ...content) => {
    const dd = element('dd');
    dd.append(...content);
    what.append(element('dt', name), dd);
  };
  const go = list => list.length ? list.map(k => element('button', k.op, {onclick: () => reveal(k)})) : ['none'];
  $('op').textContent = i.op;
  what.textContent = '';
  row('is', `${i.comm && i.side !== undefined ? 'side op ' : ''}${i.kind.name}, ${i.phase}, stage ${i.stage} on rank ${i.rank}` + (i.peer === undefined ? '' : `, rank ${i.peer} at the other end`));
  if (i.comm)
    row('predicted', spanText(i));
  else
    for (const track of i.panel.tracks)
      row(track.name, spanText(i, track));
  row('needs', ...go(from.ops));
  row('needed by', ...go(to.ops));
  if (from.transfers.length + to.transfers.length)
    row('transfers', ...go([...from.transfers, ...to.transfers]));
  if (awaited(i))
    row('waits for', ...go([awaited(i)]));
  if (slotText(i))
    row('slots', slotText(i));
  if (versionText(i))
    row('weights', versionText(i));
  if (formulaLines(i).length)
    row('formulas', formulaLines(i).join('\n'));
  row('critical path', criticalPath(i.panel).has(i) ? 'on it' : 'not on it');
  row('from', s.place);
  const source = $('source'), lines = (i.panel.sources[s.file] ?? '').split('\n');
  source.textContent = '';
  for (let n = Math.max(1, s.line - 12); n <= Math.min(lines.length, s.line + 12); n++)
    source.append(element('span', `${String(n).padStart(3)}  ${lines[n - 1]}`, {className: n === s.line ? 'here' : ''}));
}

/* Selects i, and moves it into sight, wide enough to read. */
function reveal(i) {
  select(i);
  const mid = (i.start + i.end) / 2, px = i.end > i.start ? Math.max(view.px, 26 / (i.end - i.start)) : view.px;
  const row = view.rows.find(r => r.panel === i.panel && r.rank === i.rank);
  const seen = xAt(i.start) >= view.left && xAt(i.end) <= view.width && px === view.px;
  const y = row.y >= view.y && row.bottom <= view.y + view.height - AXIS ? view.y : row.y - view.height / 2;
  place(seen ? view.t : mid - plotWidth() / px / 2, px, y);
  moved();
}

function find(text) {
  const name = text.trim().toUpperCase();
  if (!name)
    return;
  const from = view.selected ? view.selected.panel.index + (view.selected.op.toUpperCase() === name) : 0;
  const order = panels.map((_, k) => panels[(from + k) % panels.length]), p = order.find(k => k.byName.has(name));
  if (!p)
    return say(`No op ${text.trim()}. Stages are 0 to ${Math.max(...panels.map(k => k.form.stages.length)) - 1}, microbatches 0 to ${Math.max(...panels.map(k => k.form.microbatches)) - 1}.`, true);
  say(panels.filter(k => k.byName.has(name)).length > 1 ? `In ${p.form.schedule}; Enter goes on to the next schedule.` : '');
  reveal(p.byName.get(name));
}

function step(by) {
  const i = view.selected || panels[0].compute[0][0];
  const list = i.comm ? i.panel.comm[i.rank] : i.panel.compute[i.rank];
  reveal(view.selected ? list[clamp(i.nth + by, 0, list.length - 1)] : i);
}

/* ---- buttons and keys ---- */

function toggle(name) {
  view[name] = !view[name];
  $(name).setAttribute('aria-pressed', view[name]);
  writeHead();
  relayout();
}

function theme() {
  const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = dark ? 'light' : 'dark';
  readColours();
  redraw();
}

const middle = () => view.left + plotWidth() / 2;
const actions = {
  '+': () => zoom(1.5, middle()), '=': () => zoom(1.5, middle()), '-': () => zoom(1 / 1.5, middle()), '_': () => zoom(1 / 1.5, middle()),
  '0': () => place(0, 0, 0),
  ArrowLeft: () => place(view.t - 0.1 * plotWidth() / view.px, view.px, view.y),
  ArrowRight: () => place(view.t + 0.1 * plotWidth() / view.px, view.px, view.y),
  ArrowUp: () => place(view.t, view.px, view.y - 60), ArrowDown: () => place(view.t, view.px, view.y + 60),
  '[': () => step(-1), ']': () => step(1), '/': () => $('find').select(), '?': () => $('keys').showModal(),
  t: () => toggle('transfers'), c: () => toggle('critical'), m: () => toggle('memory'), d: theme, Escape: () => select(null),
};

addEventListener('keydown', e => {
  if (e.ctrlKey || e.metaKey || e.altKey || $('keys').open)
    return;
  if (['INPUT', 'SELECT'].includes(e.target.tagName)) {
    if (e.key === 'Escape')
      canvas.focus();
    return;
  }
  const action = actions[e.key];
  if (!action)
    return;
  e.preventDefault();
  action();
  moved();
});

for (const name of ['transfers', 'critical', 'memory'])
  $(name).onclick = () => toggle(name);
$('fit').onclick = () => { actions['0'](); moved(); };
$('in').onclick = () => { actions['+'](); moved(); };
$('out').onclick = () => { actions['-'](); moved(); };
$('theme').onclick = theme;
$('help').onclick = actions['?'];
$('close').onclick = () => { select(null); canvas.focus(); };
$('find').onkeydown = e => e.key === 'Enter' && find($('find').value);

/* ---- pointer: one drags, two pinch, a click selects ---- */

const fingers = new Map();
let drag = null;

function where(e) {
  const r = canvas.getBoundingClientRect();
  return [e.clientX - r.left, e.clientY - r.top];
}

canvas.onpointerdown = e => {
  const [x, y] = where(e);
  canvas.setPointerCapture(e.pointerId);
  fingers.set(e.pointerId, [x, y]);
  drag = {x, y, t: view.t, top: view.y, far: false};
};

canvas.onpointermove = e => {
  const [x, y] = where(e);
  if (!fingers.has(e.pointerId))
    return hover(x, y);
  const before = [...fingers.values()];
  fingers.set(e.pointerId, [x, y]);
  if (fingers.size === 2) {
    const now = [...fingers.values()], apart = f => Math.hypot(f[0][0] - f[1][0], f[0][1] - f[1][1]) || 1;
    zoom(apart(now) / apart(before), (now[0][0] + now[1][0]) / 2);
    drag.far = true;
    return moved();
  }
  drag.far ||= Math.hypot(x - drag.x, y - drag.y) > 4;
  if (!drag.far)
    return;
  canvas.classList.add('drag');
  $('tip').hidden = true;
  place(drag.t - (x - drag.x) / view.px, view.px, drag.top - (y - drag.y));
  moved();
};

canvas.onpointerup = e => {
  const [x, y] = where(e);
  fingers.delete(e.pointerId);
  canvas.classList.remove('drag');
  if (drag && !drag.far) {
    const h = hit(x, y);
    if (h?.op)
      select(h.op);
    else
      select(null);
  }
  const [rest] = fingers.values();
  drag = rest ? {x: rest[0], y: rest[1], t: view.t, top: view.y, far: true} : null;
};
canvas.onpointercancel = e => { fingers.delete(e.pointerId); drag = null; };
canvas.onpointerleave = () => { $('tip').hidden = true; view.hover = null; redraw(); };

canvas.addEventListener('wheel', e => {
  e.preventDefault();
  const lines = e.deltaMode === 1 ? 16 : 1, [x] = where(e);
  $('tip').hidden = true;
  if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY))
    place(view.t + (e.deltaX || e.deltaY) * lines / view.px, view.px, view.y);
  else if (e.altKey)
    place(view.t, view.px, view.y + e.deltaY * lines);
  else
    zoom(Math.exp(-e.deltaY * lines * (e.ctrlKey ? 0.01 : 0.002)), x);
  moved();
}, {passive: false});

/* ---- a measured run ---- */

let steps = [];

function showStep(k) {
  const {panel, track} = steps[k];
  panel.tracks[1] = track;
  writeHead();
  relayout();
}

async function openTrace(file) {
  try {
    steps = readTrace(await file.text(), file.name);
  } catch (e) {
    return say(e.message, true);
  }
  $('step').replaceChildren(...steps.map((s, k) => element('option', `step ${k}`, {value: k})));
  $('step').hidden = steps.length < 2;
  $('step').value = steps.length - 1;
  say(`${file.name}: ${steps.length} step${steps.length > 1 ? 's' : ''}` + (steps[0].same ? '' : ', of a program with other costs or sizes'));
  showStep(steps.length - 1);
}

$('step').onchange = () => showStep(Number($('step').value));
$('load').onclick = () => $('file').click();
$('file').onchange = () => {
  if ($('file').files[0])
    openTrace($('file').files[0]);
  $('file').value = '';
};
addEventListener('dragover', e => { e.preventDefault(); $('stage').classList.add('drop'); });
addEventListener('dragleave', e => { if (!e.relatedTarget) $('stage').classList.remove('drop'); });
addEventListener('drop', e => {
  e.preventDefault();
  $('stage').classList.remove('drop');
  if (e.dataTransfer.files[0])
    openTrace(e.dataTransfer.files[0]);
});

/* ---- print: every row of each schedule, one canvas each, on white ---- */

function printed() {
  const was = {theme: document.documentElement.dataset.theme, t: view.t, px: view.fits ? 0 : view.px, y: view.y};
  document.documentElement.dataset.theme = 'light';
  readColours();
  const rows = panels.reduce((n, p) => n + p.compute.length, 0), each = view.memory ? 52 : 26;
  layout(1100, AXIS + panels.length * TITLE + rows * each, true);
  place(was.t, was.px, 0);
  draw();
  const ratio = view.ratio, foot = canvas.height - Math.round(AXIS * ratio);
  $('print').replaceChildren(...view.titles.map((title, k) => {
    const top = Math.round((title.y - 16) * ratio), end = k + 1 < panels.length ? Math.round((view.titles[k + 1].y - 16) * ratio) : foot;
    const page = element('canvas', '', {width: canvas.width, height: end - top + canvas.height - foot});
    page.getContext('2d').drawImage(canvas, 0, top, canvas.width, end - top, 0, 0, canvas.width, end - top);
    page.getContext('2d').drawImage(canvas, 0, foot, canvas.width, canvas.height - foot, 0, end - top, canvas.width, canvas.height - foot);
    return page;
  }));
  was.theme ? document.documentElement.dataset.theme = was.theme : delete document.documentElement.dataset.theme;
  readColours();
  relayout();
  place(was.t, was.px, was.y);
}

addEventListener('beforeprint', printed);

/* ---- begin ---- */

const rowsInAll = panels.reduce((n, p) => n + p.compute.length, 0);
view.memory = rowsInAll <= 16 || doc.over !== '';
view.transfers = rowsInAll <= 32;
view.ratio = Math.min(window.devicePixelRatio || 1, 2);
for (const name of ['transfers', 'critical', 'memory'])
  $(name).setAttribute('aria-pressed', view[name]);
readColours();
writeHead();
relayout();
writeHead();
if (doc.over) {
  reveal(panels[0].byName.get(doc.over));
  say(`Over the memory limit at ${doc.over}.`, true);
}
new ResizeObserver(relayout).observe(document.body);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { readColours(); redraw(); });
