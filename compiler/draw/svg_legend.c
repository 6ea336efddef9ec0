/* SPDX-License-Identifier: MIT
 * Writes the key to the colours and the caption under the rows of a timeline picture, and its
 * style. */
#include <stdlib.h>
#include <string.h>

#include "svg_action.h"
#include "svg_page.h"

enum { MAX_LINE = 1536 }; /* most bytes of the caption */

/* The name of op in the legend: its letters, or the names of the side ops of its stream. */
static const char *names_of(const PipeProgram *p, uint8_t op, char buf[MAX_LINE]) {
  size_t n = 0;
  buf[0] = 0;
  for (uint32_t i = 0; pipe_is_side(op) && i < p->nside && n < MAX_LINE; i++)
    if (p->side[i].op == op && (i == 0 || p->side[i].decl != p->side[i - 1].decl))
      n += (size_t)snprintf(buf + n, MAX_LINE - n, "%s%s", n ? " " : "", p->side[i].name);
  return n ? buf : pipe_op_info[op].text;
}

/* The place of the legend's next swatch. */
typedef struct Key {
  double x, y;
  int lines;
  bool draw; /* false: it is only measured */
} Key;

/* Makes room for a swatch and a text of this width; begins a line if the text would pass the page's
 * edge. */
static void make_room(const Page *g, Key *k, double wide) {
  if (k->x > g->left && k->x + wide > g->left + g->width + g->beside) {
    k->x = g->left, k->y += 16;
    k->lines++;
  }
}

/* Estimates the width of a text of 10.5 px; capitals are wider. */
static double key_width(const char *text) {
  double w = 5.4 * (double)strlen(text);
  for (int n = 0; *text; text++)
    w += *text >= 'A' && *text <= 'Z' && n++ ? 2 : 0;
  return w;
}

static void key_box(const Page *g, Key *k, const char *style, const char *text) {
  double w = key_width(text);
  make_room(g, k, 20 + w);
  if (k->draw)
    svg_emit(g->out,
             "<rect class=\"$\" x=\"~\" y=\"~\" width=\"15\" height=\"11\"/>\n"
             "<text class=\"key\" x=\"~\" y=\"~\">$</text>\n",
             style, k->x, k->y - 9, k->x + 20, k->y, text);
  k->x += 20 + w + 14;
}

static void key_chunks(const Page *g, Key *k) {
  make_room(g, k, 18.0 * g->nchunk + 2 + 5.4 * (4.0 + 3 * g->nchunk));
  for (uint32_t c = 0; k->draw && c < g->nchunk; c++) {
    double h = 11 * svg_strip(g, c) / g->row, x = k->x + 18.0 * c;
    svg_emit(g->out, "<rect class=\"F\" x=\"~\" y=\"~\" width=\"15\" height=\"11\"/>", x, k->y - 9);
    if (c)
      svg_emit(g->out, "<path class=\"chunk\" d=\"M~ ~h15v~h-15z\"/>", x, k->y + 2 - h, h);
  }
  if (!k->draw)
    return;
  svg_emit(g->out, "\n<text class=\"key\" x=\"~\" y=\"~\">chunk 0", k->x + 18.0 * g->nchunk + 2,
           k->y);
  for (uint32_t c = 1; c < g->nchunk; c++)
    svg_emit(g->out, ", #", (unsigned)c);
  svg_emit(g->out, "</text>\n");
}

int svg_legend(const Page *g, double y, bool phases, bool dense) {
  Key k = {g->left, y, 1, y > 0};
  for (uint8_t op = 0; op < PIPE_NOPS; op++) {
    char buf[MAX_LINE], text[MAX_LINE + 32];
    if (!g->used[op])
      continue;
    snprintf(text, sizeof text, "%s %s", names_of(g->p, op, buf), svg_look[op].name);
    key_box(g, &k, pipe_op_info[op].text, text);
  }
  key_box(g, &k, "idle", "idle");
  if (g->arrows) {
    make_room(g, &k, 20 + 42);
    if (k.draw)
      svg_emit(
          g->out,
          "<path class=\"send\" d=\"M~ ~h12\"/><path class=\"head\" d=\"M~ ~l-3.6 -1.5v3z\"/>\n"
          "<text class=\"key\" x=\"~\" y=\"~\">transfer</text>\n",
          k.x, k.y - 3.5, k.x + 15, k.y - 3.5, k.x + 20, k.y);
    k.x += 20 + 42 + 14;
  }
  if (g->curve > 0) {
    const char *line = g->limit && g->sized ? "limit" : "proved";
    if (g->sized)
      key_box(g, &k, "fixed", "always there");
    key_box(g, &k, "live", g->sized ? "stashes" : "stashes alive");
    make_room(g, &k, 20 + key_width(line));
    if (k.draw)
      svg_emit(
          g->out,
          "<path class=\"limit\" d=\"M~ ~h15\"/><text class=\"key\" x=\"~\" y=\"~\">$</text>\n",
          k.x, k.y - 3.5, k.x + 20, k.y, line);
    k.x += 20 + key_width(line) + 14;
  }
  if (phases) {
    make_room(g, &k, 9 + 32);
    if (k.draw)
      svg_emit(g->out,
               "<path class=\"phase\" d=\"M~ ~v13\"/>\n"
               "<text class=\"key\" x=\"~\" y=\"~\">phase</text>\n",
               k.x + 2, k.y - 10.5, k.x + 9, k.y);
    k.x += 9 + 32 + 14;
  }
  if (g->nchunk >= 2 && g->nchunk <= 8 && !dense)
    key_chunks(g, &k);
  return k.lines;
}

int svg_caption(const Page *g, const Panel *n, int npanel, double y) {
  char text[MAX_LINE], a[SVG_NUMBER], b[SVG_NUMBER];
  size_t len = 0;
  bool dense = false;
  for (int i = 0; i < npanel; i++)
    dense |= n[i].dense;
#define SAY(...) \
  do { \
    int k = snprintf(text + len, sizeof text - len, __VA_ARGS__); \
    len = k >= 0 && len + (size_t)k < sizeof text ? len + (size_t)k : sizeof text - 1; \
  } while (0)
  SAY("Bubble: idle share of rank-time between the first start and the last end.");
  if (npanel == 2 && span_of(&n[1]) > 0) {
    const Panel *last = &n[1];
    svg_digits(a, span_of(&n[0]) / span_of(last), 4, false);
    if (n[0].track->timed != last->track->timed)
      SAY(" One unit is drawn as %s, so that both panels are equally busy;",
          svg_time(b, last->track->scale, n[0].track->timed));
    SAY("%s makespan is %s times the predicted.",
        n[0].track->timed != last->track->timed ? " on that scale the measured" : " The measured",
        a);
  }
  if (npanel && g->p->ideal && g->p->ideal < g->p->makespan)
    SAY(" With transfers that never wait the prediction is %s.",
        svg_time(a, (double)g->p->ideal, (int)g->p->timed));
  SAY(" In flight: most activation stashes alive at once.");
  bool copies = g->used[PIPE_OFF] || g->used[PIPE_LOAD],
       sides = g->used[PIPE_SIDE_COPY] || g->used[PIPE_SIDE_COMM];
  if (g->lane > 0)
    SAY(" The strip under a row: its %s%s%s.", copies ? "copies to and from host memory" : "",
        copies && sides ? ", and " : "", sides ? "side ops in other streams" : "");
  if (g->sized)
    SAY(" Memory: proved bound, of weights, gradients, optimizer state, workspace and slots.");
  if (g->curve > 0)
    SAY(" Under each row: %s.", g->sized ? "its memory over time" : "its stashes alive over time");
  SAY("%s", svg_actions_said(g->p));
  if (dense)
    SAY(" Ops are narrower than a dot: each column shows the kinds' shares of its time.");
  if (g->said)
    SAY(" %s", g->said);
#undef SAY
  size_t most = (size_t)((g->width + COLUMN) / 4.9);
  int lines = 0;
  for (char *s = text; *s; lines++) {
    size_t cut = strlen(s);
    if (cut > most) {
      cut = most;
      while (cut > 0 && s[cut] != ' ')
        cut--;
    }
    char was = s[cut];
    s[cut] = 0;
    if (y > 0)
      svg_emit(g->out, "<text class=\"cap\" x=\"~\" y=\"~\">$</text>\n", g->left, y + lines * 14.0,
               s);
    s[cut] = was;
    s += cut + (was == ' ');
  }
  return lines;
}

void svg_style(const Page *g) {
  fputs("<defs>\n<pattern id=\"hatch\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
        "patternTransform=\"rotate(45)\"><rect width=\"5\" height=\"5\" fill=\"#fafafa\"/>"
        "<path d=\"M0 0V5\" stroke=\"#bdbdbd\" stroke-width=\"1.3\"/></pattern>\n"
        "<style type=\"text/css\">\n"
        "text{font-family:Helvetica,Arial,'Liberation Sans','DejaVu Sans',sans-serif;fill:#222}\n"
        ".idle{fill:url(#hatch)}\n"
        ".send{fill:none;stroke:#555;stroke-width:.7}\n.far{stroke-opacity:.4}\n.head{fill:#555}\n"
        ".phase{fill:none;stroke:#222;stroke-width:.9;stroke-dasharray:3 2}\n"
        ".chunk{fill:#000;fill-opacity:.5}\n"
        ".live{fill:#c3afd9}\n.fixed{fill:#dcdcdc}\n.foot{fill:none;stroke:#999;stroke-width:.6}\n"
        ".limit{fill:none;stroke:#b3261e;stroke-width:.9;stroke-dasharray:4 2}\n"
        ".over{fill:none;stroke:#b3261e;stroke-width:2.2}\n"
        "text.bound{font-size:8px;fill:#b3261e}\n"
        ".axis{fill:none;stroke:#444;stroke-width:.8}\n"
        ".tick text{font-size:10px;text-anchor:middle}\n"
        ".title{font-size:16px;font-weight:bold}\n.fact{font-size:12px;font-weight:normal}\n"
        ".panel{font-size:13px;font-weight:bold}\n.rank,.col{text-anchor:end}\n"
        "text.soft{fill:#666}\n.action{fill:none;stroke:#c2185b;stroke-width:1.8}\n"
        ".name{font-size:10px;font-style:italic;text-anchor:middle;fill:#444}\n"
        ".key{font-size:10.5px}\n.cap{font-size:10.5px;fill:#444}\n",
        g->out);
  svg_emit(g->out, ".mb text{font-size:~px;text-anchor:middle;fill:inherit}\n", g->label);
  for (uint8_t op = 0; op < PIPE_NOPS; op++)
    if (g->used[op] && svg_look[op].fill)
      fprintf(g->out, ".%s{fill:%s}\n", pipe_op_info[op].text, svg_look[op].fill);
  fputs("</style>\n</defs>\n", g->out);
}
