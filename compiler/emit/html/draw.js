/* SPDX-License-Identifier: MIT
 * Draws the page. This file sets the pixels of rows and memory curves itself, so that a frame costs what is visible,
 * and never more than there are pixels: in a row whose ops are narrower than a pixel, each column shows the shares of
 * the kinds. Text, arrows and outlines are drawn over the pixels, and left out where they have no room. Sizes are CSS
 * pixels; in raster*, device pixels. */
'use strict';

const $ = id => document.getElementById(id);
const canvas = $('canvas'), ctx = canvas.getContext('2d');
const AXIS = 30, TITLE = 24, COPY = 8, RIGHT = 10, ARROW_PX = 13, MAX_LABELS = 2500;

const view = {
  left: 60, width: 0, height: 0, content: 0, ratio: 1,
  t: 0, px: 0,          // time at the left end; pixels per time unit
  fits: true,           // all times are visible, and stay so when the page changes size
  y: 0,                 // pixels scrolled down
  transfers: true, critical: false, memory: true, selected: null, hover: null,
  rows: [], titles: [], moving: 0, dense: false, hidden: 0, // hidden: transfers for which there is no room
};

/* ---- colours ---- */

const colour = {};
function readColours() {
  const probe = document.createElement('i');
  document.body.append(probe);
  for (const name of ['page', 'text', 'soft', 'line', 'idle', 'hatch', 'arrow', 'live', 'fixed', 'limit', 'mark']) {
    probe.style.color = `var(--${name})`;
    colour[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  const page = rgb(colour.page), dark = luminance(page) < 0.5;
  for (const name of ['live', 'fixed'])
    colour[name + 'Pixel'] = pixel(rgb(colour[name]));
  for (const [name, by] of [['full', 0], ['dim', dark ? 0.78 : 0.74]]) {
    const pal = palette[name] = {fill: [], foot: [], edge: []};
    for (const k of doc.ops) {
      const fill = mix(rgb(k.fill || '#999999'), page, by);
      pal.fill.push(pixel(fill));
      pal.foot.push(pixel(mix(fill, dark && by ? page : [0, 0, 0], 0.5)));
      pal.edge.push(pixel(dark && luminance(fill) < 0.12 ? mix(fill, [255, 255, 255], by ? 0.12 : 0.45) : fill));
    }
  }
  const tile = document.createElement('canvas'), n = Math.round(5 * view.ratio);
  tile.width = tile.height = n;
  const g = tile.getContext('2d');
  g.fillStyle = colour.idle;
  g.fillRect(0, 0, n, n);
  g.strokeStyle = colour.hatch;
  g.lineWidth = view.ratio;
  g.beginPath();
  for (const d of [-n, 0, n])
    g.moveTo(d - 1, n + 1), g.lineTo(d + n + 1, -1);
  g.stroke();
  colour.pattern = ctx.createPattern(tile, 'repeat');
  colour.pattern.setTransform(new DOMMatrix().scale(1 / view.ratio));
}
const palette = {};

function rgb(text) {
  if (text[0] === '#')
    return [1, 3, 5].map(k => parseInt(text.slice(k, k + 2), 16));
  return text.match(/[\d.]+/g).slice(0, 3).map(Number);
}
const mix = (a, b, by) => a.map((v, k) => v + (b[k] - v) * by);
const luminance = c => (0.2126 * c[0] ** 2.2 + 0.7152 * c[1] ** 2.2 + 0.0722 * c[2] ** 2.2) / 255 ** 2.2;
const pixel = c => (255 << 24 | Math.round(c[2]) << 16 | Math.round(c[1]) << 8 | Math.round(c[0])) >>> 0;

/* ---- layout ---- */

const clamp = (v, lo, hi) => Math.max(lo, Math.min(hi, v));
const xAt = t => view.left + (t - view.t) * view.px;
const timeAt = x => view.t + (x - view.left) / view.px;
const plotWidth = () => view.width - view.left - RIGHT;

function extent() {
  return Math.max(1e-9, ...panels.flatMap(p => p.tracks.map(t => t.last)));
}

/* Places the rows of every panel. They fill `room` pixels if their height then reads well. */
function layout(width, room, all) { /* all: as high as all rows */
  view.ratio = Math.min(window.devicePixelRatio || 1, 2);
  view.width = width;
  const ranks = panels.reduce((n, p) => n + p.compute.length, 0), tracks = Math.max(...panels.map(p => p.tracks.length));
  const copies = panels.some(p => p.lanes) ? COPY : 0;
  const each = (room - AXIS - panels.length * TITLE) / ranks - copies, parts = tracks + (view.memory ? 0.9 : 0);
  const gap = view.transfers ? (ranks <= 32 ? 10 : 6) : each < 12 ? 1 : 4;
  const h = clamp((each - gap) / parts, view.memory ? 12 : ranks > 128 ? 3 : 8, 44);
  view.rows = [], view.titles = [];
  let y = 0;
  for (const p of panels) {
    view.titles.push({panel: p, y: y + 16});
    y += TITLE;
    p.compute.forEach((ops, r) => {
      p.tracks.forEach((track, k) => view.rows.push({panel: p, track, rank: r, y: y + k * h, h: h - (k + 1 < p.tracks.length ? 1 : 0)}));
      const row = view.rows[view.rows.length - p.tracks.length];
      row.first = true;
      y += h * p.tracks.length;
      row.foot = y;
      if (p.lanes)
        y += COPY;
      if (view.memory) {
        row.curve = {y: y + 2, h: 0.9 * h - 2};
        y += 0.9 * h;
      }
      row.bottom = y;
      y += gap;
    });
  }
  view.content = y + AXIS;
  view.height = all ? view.content : Math.min(view.content, Math.max(room, 160));
  canvas.style.height = view.height + 'px';
  const w = Math.round(width * view.ratio), ch = Math.round(view.height * view.ratio);
  if (canvas.width !== w || canvas.height !== ch) {
    canvas.width = w, canvas.height = ch;
    image = null;
  }
  place(view.t, view.fits ? 0 : view.px, view.y);
}

/* Moves the view to a place that shows something. */
function place(t, px, y) {
  const all = extent(), fit = plotWidth() / all;
  const most = Math.max(fit, plotWidth() / Math.min(...panels.flatMap(p => p.tracks.map(k => k.shortest)), all));
  view.px = clamp(px || fit, fit, most);
  view.fits = view.px <= fit * 1.0001;
  view.t = clamp(t, 0, Math.max(0, all - plotWidth() / view.px));
  view.y = clamp(y, 0, Math.max(0, view.content - view.height));
}

function zoom(by, x) {
  const t = timeAt(x), px = view.px;
  place(view.t, px * by, view.y);
  place(t - (x - view.left) / view.px, view.px, view.y);
}

/* ---- pixels ---- */

let image = null, pixels = null, backing = null, scan = null;

function rasterStart(w, h) {
  if (!image) {
    backing = document.createElement('canvas');
    backing.width = w, backing.height = h;
    image = backing.getContext('2d').createImageData(w, h);
    pixels = new Uint32Array(image.data.buffer);
    scan = {top: new Uint32Array(w), low: new Uint32Array(w), edge: [new Uint32Array(w), new Uint32Array(w)], foot: new Uint8Array(w),
            share: new Float32Array((w + 16) * doc.ops.length), level: new Float32Array(w)};
  }
  pixels.fill(0);
}

/* The first index k with a[k] > t. */
function after(a, t) {
  let lo = 0, hi = a.length;
  while (lo < hi) {
    const mid = lo + hi >> 1;
    a[mid] > t ? hi = mid : lo = mid + 1;
  }
  return lo;
}

/* The indices of the visible ops of a rank. */
function visible(track, r) {
  return [Math.max(0, after(track.start[r], view.t) - 3), after(track.start[r], view.t + plotWidth() / view.px)];
}

function rasterRow(row, w, h, pal) {
  const {track, rank} = row, start = track.start[rank], end = track.end[rank], kindOf = row.panel.kindOf[rank], chunkOf = row.panel.chunkOf[rank];
  const d = view.ratio, px = view.px * d, top = Math.round((row.y - view.y) * d), high = Math.max(1, Math.round((row.y + row.h - view.y) * d) - top);
  if (top + high <= 0 || top >= h)
    return;
  const [from, to] = visible(track, rank);
  const seen = (Math.min(track.last, view.t + w / px) - Math.max(0, view.t)) * px;
  if (to - from > 0.6 * seen)
    return rasterShares(row, w, h, px, top, high, pal);
  const lane = track.lane[rank], chunks = row.panel.chunks;
  scan.top.fill(0), scan.low.fill(0), scan.edge[0].fill(0), scan.edge[1].fill(0), scan.foot.fill(0);
  let foot = 0;
  for (let k = from; k < to; k++) {
    const a = Math.round((start[k] - view.t) * px);
    let b = Math.round((end[k] - view.t) * px);
    if (b <= 0 || a >= w || end[k] === start[k])
      continue;
    b = Math.max(b - a >= 4 ? b - 1 : b, a + 1);
    const kind = kindOf[k], fill = pal.fill[kind], x0 = Math.max(0, a), x1 = Math.min(w, b);
    for (let x = x0; x < x1 && lane[k] !== 1; x++)
      scan.top[x] = fill;
    for (let x = x0; x < x1 && lane[k] !== 0; x++)
      scan.low[x] = fill;
    if (pal.edge[kind] !== fill) {
      for (const half of [0, 1]) {
        if (lane[k] === 1 - half)
          continue;
        const line = half ? scan.low : scan.top;
        scan.edge[half].fill(pal.edge[kind], x0, x1);
        if (a >= 0)
          line[a] = pal.edge[kind];
        if (b <= w)
          line[b - 1] = pal.edge[kind];
      }
    }
    if (chunkOf[k] && b - a > 1.5) {
      const strip = Math.round(high * 0.24 * chunkOf[k] / (chunks - 1));
      foot = Math.max(foot, strip);
      scan.foot.fill(strip, x0, x1);
    }
  }
  const split = high >> 1;
  for (let y = Math.max(0, -top); y < high && top + y < h; y++)
    pixels.set(y < split ? scan.top : scan.low, (top + y) * w);
  for (const [half, y] of [[0, 0], [1, high - 1]])
    if (top + y >= 0 && top + y < h)
      for (let x = 0; x < w; x++)
        if (scan.edge[half][x])
          pixels[(top + y) * w + x] = scan.edge[half][x];
  for (let y = high - foot; y < high; y++)
    if (top + y >= 0 && top + y < h)
      for (let x = 0, at = (top + y) * w; x < w; x++, at++)
        if (scan.foot[x] >= high - y)
          pixels[at] = 255 << 24 | (pixels[at] >> 1 & 0x7f7f7f);
}

/* Draws ops narrower than pixels: each column stacks the kinds by their shares. A column is several ops wide, or the
 * beat of single ops would show; it keeps its times when the view moves. */
function rasterShares(row, w, h, px, top, high, pal) {
  const {track, rank} = row, start = track.start[rank], end = track.end[rank], kindOf = row.panel.kindOf[rank];
  const mean = px * (track.last - track.begin) / start.length;
  const n = doc.ops.length, share = scan.share, c = clamp(Math.ceil(6 * mean), 1, 6), shift = (view.t * px) % c;
  const from = Math.max(0, after(start, view.t - shift / px) - 3), until = view.t + (w + c) / px;
  view.dense = true;
  share.fill(0);
  for (let k = from; k < start.length && start[k] < until; k++) {
    const a = Math.max(0, (start[k] - view.t) * px + shift), b = Math.min(w + c, (end[k] - view.t) * px + shift), kind = kindOf[k];
    for (let x = Math.floor(a / c); x * c < b; x++)
      share[x * n + kind] += (Math.min(b, (x + 1) * c) - Math.max(a, x * c)) / c;
  }
  for (let x = 0; x * c - shift < w; x++) {
    const x0 = Math.max(0, Math.round(x * c - shift)), x1 = Math.min(w, Math.round((x + 1) * c - shift));
    let sum = 0, y = high;
    for (let kind = 0; kind < n; kind++) {
      if (!share[x * n + kind])
        continue;
      sum += share[x * n + kind];
      const stop = Math.max(0, high - Math.round(Math.min(1, sum) * high)), fill = pal.fill[kind];
      for (; y > stop; y--)
        if (top + y - 1 >= 0 && top + y - 1 < h)
          for (let at = (top + y - 1) * w + x0, beyond = at + x1 - x0; at < beyond; at++)
            pixels[at] = fill;
    }
  }
}

/* The height of a column is the most that is alive in it. */
function rasterCurve(row, w, h) {
  const c = findCurves(row.panel)[row.rank], d = view.ratio, px = view.px * d;
  const foot = Math.round((row.curve.y + row.curve.h - view.y) * d), unit = row.curve.h * d / (1.06 * row.panel.most);
  if (foot <= 0 || foot - row.curve.h * d >= h)
    return;
  const stop = Math.min(w, Math.ceil((row.panel.form.makespan - view.t) * px)), base = Math.round(c.base * unit);
  const level = scan.level;
  let k = Math.max(0, after(c.at, view.t) - 1), high = 0;
  for (let x = 0; x < stop; x++) {
    let most = c.level[k];
    for (const until = view.t + (x + 1) / px; k + 1 < c.at.length && c.at[k + 1] < until;)
      most = Math.max(most, c.level[++k]);
    level[x] = Math.round(most * unit);
    high = Math.max(high, level[x]);
  }
  for (let y = 0; y < high; y++) {
    const at = (foot - 1 - y) * w;
    if (at >= 0 && at < w * h)
      for (let x = 0; x < stop; x++)
        if (level[x] > y)
          pixels[at + x] = y < base ? colour.fixedPixel : colour.livePixel;
  }
}

/* ---- everything ---- */

function draw() {
  const w = Math.round(plotWidth() * view.ratio), h = canvas.height;
  const lit = litOps(), pal = lit ? palette.dim : palette.full;
  ctx.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
  ctx.fillStyle = colour.page;
  ctx.fillRect(0, 0, view.width, view.height);
  drawRows();
  view.dense = false;
  if (w > 0) {
    rasterStart(w, h);
    for (const row of view.rows) {
      rasterRow(row, w, h, pal);
      if (row.curve)
        rasterCurve(row, w, h);
    }
    backing.getContext('2d').putImageData(image, 0, 0);
    ctx.drawImage(backing, view.left, 0, w / view.ratio, h / view.ratio);
  }
  ctx.save();
  ctx.beginPath();
  ctx.rect(view.left - 1, 0, plotWidth() + 2, view.height - AXIS);
  ctx.clip();
  drawCopies(lit);
  if (view.memory)
    drawLimits();
  if (lit)
    drawLit(lit);
  drawLabels(lit);
  if (view.transfers || view.selected)
    drawTransfers(lit);
  if (view.hover)
    outline(view.hover.track, view.hover.op, colour.text, 1);
  ctx.restore();
  drawTitles();
  drawAxis();
  drawMore();
}

/* Shows how many rows are below the edge, and marks the position of the view. */
function drawMore() {
  const room = view.height - AXIS, all = view.content - AXIS, below = view.rows.filter(r => r.first && r.y - view.y >= room).length;
  if (all <= room + 1)
    return;
  ctx.fillStyle = colour.soft;
  ctx.fillRect(view.width - 5, room * view.y / all, 4, room * room / all);
  if (!below)
    return;
  const text = `\u25be ${below} more rank${below === 1 ? '' : 's'} below`;
  ctx.font = '12px Helvetica, Arial, "Liberation Sans", "DejaVu Sans", sans-serif';
  ctx.textAlign = 'right';
  ctx.textBaseline = 'middle';
  const w = ctx.measureText(text).width + 16;
  ctx.fillStyle = colour.text;
  ctx.fillRect(view.width - 8 - w, room - 24, w, 20);
  ctx.fillStyle = colour.page;
  ctx.fillText(text, view.width - 16, room - 14);
}

/* Draws the hatch under the ops of a row; what remains visible of it is idle time. */
function drawRows() {
  ctx.textBaseline = 'middle';
  ctx.textAlign = 'right';
  let last = -Infinity;
  for (const row of view.rows) {
    const y = row.y - view.y, a = Math.max(view.left, xAt(0)), b = Math.min(view.width - RIGHT, xAt(row.track.last));
    if (y + row.h < 0 || y > view.height)
      continue;
    ctx.fillStyle = colour.pattern;
    ctx.fillRect(a, y, Math.max(0, b - a), row.h);
    ctx.fillStyle = row.first ? colour.text : colour.soft;
    if (y - last < 11)
      continue;
    last = y;
    ctx.font = `${row.first ? 12 : 10.5}px Helvetica, Arial, "Liberation Sans", "DejaVu Sans", sans-serif`;
    ctx.fillText(row.first ? `rank ${row.rank}` : row.track.name, view.left - 7, y + row.h / 2 + 0.5);
  }
}

/* Draws copies and side ops in a low track under the ops of a rank: its copy stream and, half as high, side ops of
 * the comm stream. */
function drawCopies(lit) {
  const until = view.t + plotWidth() / view.px;
  for (const row of view.rows) {
    const {ops: list, start, longest} = row.panel.lane[row.rank], y = row.foot - view.y;
    if (!row.first || !list.length || y < 0 || y > view.height)
      continue;
    for (let k = Math.max(0, after(start, view.t - longest) - 1); k < list.length && start[k] < until; k++) {
      const i = list[k], x = xAt(i.start), w = xAt(i.end) - x;
      if (w === 0)
        continue;
      ctx.globalAlpha = lit && !lit.has(i) ? 0.25 : 1;
      ctx.fillStyle = i.kind.fill || colour.soft;
      const low = i.kind.stream === 'COMM' ? (COPY - 3) / 2 : 0;
      ctx.fillRect(x, y + 2 + low, Math.max(0.7, w - (w >= 3 ? 0.7 : 0)), COPY - 3 - low);
    }
  }
  ctx.globalAlpha = 1;
}

function drawLimits() {
  ctx.strokeStyle = colour.limit;
  ctx.setLineDash([4, 2]);
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (const row of view.rows) {
    if (!row.curve)
      continue;
    const c = findCurves(row.panel)[row.rank];
    const y = Math.round(row.curve.y + row.curve.h - view.y - c.bound * row.curve.h / (1.06 * row.panel.most)) + 0.5;
    ctx.moveTo(xAt(0), y);
    ctx.lineTo(Math.min(view.width, xAt(row.panel.form.makespan)), y);
  }
  ctx.stroke();
  ctx.setLineDash([]);
}

/* The instructions that are not dimmed: a Map to whether they are outlined; null: nothing is dimmed. */
function litOps() {
  const s = view.selected;
  if (!s && !view.critical)
    return null;
  const lit = new Map();
  if (view.critical)
    for (const p of panels)
      for (const i of criticalPath(p))
        lit.set(i, false);
  if (s) {
    for (const way of ['from', 'to']) {
      const n = neighbours(s, way);
      for (const i of [...n.ops, ...n.transfers])
        lit.set(i, false);
    }
    lit.set(s, true);
  }
  return lit;
}

/* The place of op i: x, y, width, height; null: not in sight. */
function box(track, i) {
  const row = view.rows.find(k => k.track === track && k.rank === i.rank), k = i.nth;
  const a = Math.max(xAt(track.start[i.rank][k]), view.left - 4), b = Math.min(xAt(track.end[i.rank][k]), view.width + 4);
  if (b < view.left || a > view.width)
    return null;
  const lane = track.lane[i.rank][k], h = lane === 2 ? row.h : row.h / 2;
  return [a, row.y - view.y + (lane === 1 ? h : 0), Math.max(1.5, b - a - (b - a >= 4 ? 1 : 0)), h];
}

function outline(track, i, stroke, width) {
  const at = !i.comm && box(track, i);
  if (!at)
    return;
  ctx.strokeStyle = stroke;
  ctx.lineWidth = width;
  ctx.strokeRect(at[0], at[1], at[2], at[3]);
}

function drawLit(lit) {
  const found = new Map();
  for (const row of view.rows)
    found.set(row.track, (found.get(row.track) || new Map()).set(row.rank, row));
  const path = view.critical || !view.selected ? null : criticalPath(view.selected.panel);
  for (const i of lit.keys()) {
    if (i.comm)
      continue;
    for (const track of i.panel.tracks) {
      const a = xAt(track.start[i.rank][i.nth]), b = xAt(track.end[i.rank][i.nth]);
      if (b < view.left || a > view.width)
        continue;
      const row = found.get(track).get(i.rank), lane = track.lane[i.rank][i.nth], h = lane === 2 ? row.h : row.h / 2;
      const y = row.y - view.y + (lane === 1 ? h : 0), x = Math.max(a, view.left - 4), w = Math.max(1, Math.min(b, view.width + 4) - x - (b - a >= 4 ? 1 : 0));
      ctx.fillStyle = i.kind.fill;
      ctx.fillRect(x, y, w, h);
      if ((view.critical && i !== view.selected && criticalPath(i.panel).has(i) && w > 5) || (path && path.has(i))) {
        ctx.strokeStyle = colour.mark;
        ctx.lineWidth = 1.5;
        ctx.strokeRect(x + 0.75, y + 0.75, w - 1.5, h - 1.5);
      }
    }
  }
  if (view.selected)
    for (const track of view.selected.panel.tracks)
      outline(track, view.selected, colour.text, 2.5);
}

/* Labels ops that are wide enough with their microbatch. While the view moves, more than MAX_LABELS labels wait. */
function drawLabels(lit) {
  const byKind = new Map();
  let count = 0;
  ctx.textAlign = 'center';
  for (const row of view.rows) {
    const y = row.y - view.y;
    if (row.h < 9 || y + row.h < 0 || y > view.height)
      continue;
    const size = clamp(row.h * 0.46, 7, 13), {track, rank} = row, ops = row.panel.compute[rank];
    /* room for the longest label, or only short ones would show */
    const room = row.panel.letters * size * 0.58 + 3;
    const [from, to] = visible(track, rank);
    if (to - from > plotWidth() / (size * 0.58))
      continue;
    for (let k = from; k < to; k++) {
      const a = xAt(track.start[rank][k]), b = xAt(track.end[rank][k]), i = ops[k], lane = track.lane[rank][k];
      if (Math.min(b, view.width - RIGHT) - Math.max(a, view.left) < room || (lit && !lit.has(i)))
        continue;
      if (!byKind.has(i.kind))
        byKind.set(i.kind, []);
      byKind.get(i.kind).push([i.label, (Math.max(a, view.left) + Math.min(b, view.width)) / 2 - 0.5,
                               y + row.h * (lane === 2 ? 0.5 : lane ? 0.75 : 0.25) + 0.5, size]);
      count++;
    }
  }
  if (count > MAX_LABELS && view.moving)
    return;
  let font = 0;
  for (const [kind, list] of byKind) {
    ctx.fillStyle = kind.ink || '#000000';
    for (const [text, x, y, size] of list) {
      if (size !== font)
        ctx.font = `${font = size}px Helvetica, Arial, "Liberation Sans", "DejaVu Sans", sans-serif`;
      ctx.fillText(text, x, y);
    }
  }
}

/* Draws arrows if they have room: as many as --emit=svg would draw, counted in the visible part. */
function drawTransfers(lit) {
  const until = view.t + plotWidth() / view.px, list = [];
  for (const p of panels) {
    const pairs = findPairs(p);
    p.starts ||= Float64Array.from(pairs, t => t.start);
    for (let k = after(p.starts, view.t - p.longest - 1e-9); k < pairs.length && p.starts[k] <= until; k++)
      if ((!lit || lit.has(pairs[k].send) || lit.has(pairs[k].recv)) && (view.transfers || lit))
        list.push(pairs[k]);
  }
  const ranks = Math.max(...panels.map(p => p.compute.length));
  view.hidden = !lit && list.length * ARROW_PX > plotWidth() * Math.max(1, ranks - 1) ? list.length : 0;
  if (view.hidden)
    return;
  const foot = new Map();
  for (const row of view.rows)
    if (row.first)
      foot.set(row.panel.index + ' ' + row.rank, row);
  ctx.strokeStyle = ctx.fillStyle = lit ? colour.mark : colour.arrow;
  ctx.lineWidth = lit ? 1.3 : 0.8;
  ctx.globalAlpha = list.length > 400 ? 0.6 : 1;
  const heads = new Path2D();
  ctx.beginPath();
  for (const t of list) {
    const a = foot.get(t.send.panel.index + ' ' + t.send.rank), b = foot.get(t.send.panel.index + ' ' + t.recv.rank);
    const down = b.y > a.y, x0 = xAt(t.start), x1 = xAt(t.end);
    const y0 = (down ? a.foot : a.y) - view.y, y1 = (down ? b.y : b.foot) - view.y;
    const n = Math.hypot(x1 - x0, y1 - y0) || 1, ux = (x1 - x0) / n, uy = (y1 - y0) / n;
    ctx.moveTo(x0, y0);
    ctx.lineTo(x1, y1);
    heads.moveTo(x1, y1);
    heads.lineTo(x1 - 5 * ux + 2 * uy, y1 - 5 * uy - 2 * ux);
    heads.lineTo(x1 - 5 * ux - 2 * uy, y1 - 5 * uy + 2 * ux);
  }
  ctx.stroke();
  ctx.fill(heads);
  ctx.globalAlpha = 1;
}

function drawTitles() {
  ctx.textAlign = 'left';
  ctx.textBaseline = 'alphabetic';
  for (const {panel, y} of view.titles) {
    if (y - view.y < -10 || y - view.y > view.height)
      continue;
    const name = panels.length > 1 ? panel.title : 'Predicted';
    ctx.font = 'bold 13px Helvetica, Arial, "Liberation Sans", "DejaVu Sans", sans-serif';
    ctx.fillStyle = colour.text;
    ctx.fillText(name, view.left, y - view.y, plotWidth());
    const at = view.left + ctx.measureText(name).width + 14;
    ctx.font = '12px Helvetica, Arial, "Liberation Sans", "DejaVu Sans", sans-serif';
    ctx.fillStyle = colour.soft;
    /* else only the caption has the facts */
    if (at + ctx.measureText(panelFacts(panel)).width <= view.width)
      ctx.fillText(panelFacts(panel), at, y - view.y);
  }
}

function panelFacts(p) {
  const [predicted, measured] = p.tracks, percent = t => `bubble ${(100 * t.bubble).toFixed(1)} %`;
  let text = `makespan ${timeText(p.form.makespan, p.timed)} \u00b7 ${percent(predicted)}`;
  if (measured)
    text += ` \u00b7 measured ${timeText(measured.makespan / measured.factor, true, 4)}, ${percent(measured)}, ` +
            `${digits(measured.makespan / predicted.makespan, 4)} \u00d7 predicted`;
  return text;
}

function drawAxis() {
  const y = view.height - AXIS, timed = panels[0].timed;
  ctx.fillStyle = colour.page;
  ctx.fillRect(0, y, view.width, AXIS);
  const u = timeUnit(plotWidth() / view.px, timed), px = view.px * u.per;
  let step = 10 ** Math.floor(Math.log10(70 / px));
  for (let k = 0; step * px < 70; k++)
    step *= k % 3 === 1 ? 2.5 : 2;
  if (!timed && view.px < 70)
    step = Math.max(1, step);
  ctx.strokeStyle = ctx.fillStyle = colour.soft;
  ctx.lineWidth = 1;
  ctx.font = '11px Helvetica, Arial, "Liberation Sans", "DejaVu Sans", sans-serif';
  ctx.textAlign = 'center';
  ctx.textBaseline = 'top';
  ctx.beginPath();
  ctx.moveTo(view.left, y + 0.5);
  ctx.lineTo(view.width - RIGHT, y + 0.5);
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9) + (String(step).includes('25') ? 1 : 0));
  for (let k = Math.ceil(view.t / u.per / step - 1e-9); k * step * u.per <= timeAt(view.width - RIGHT) + 1e-9; k++) {
    const x = Math.round(xAt(k * step * u.per)) + 0.5;
    ctx.moveTo(x, y);
    ctx.lineTo(x, y + 5);
    ctx.fillText((k * step).toFixed(step >= 1 && Number.isInteger(step) ? 0 : decimals), x, y + 8);
  }
  ctx.stroke();
  ctx.textAlign = 'right';
  ctx.fillText(u.name, view.left - 16, y + 8);
}
