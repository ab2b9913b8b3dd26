(() => {
  const data = JSON.parse(document.getElementById("profile").textContent);
  const strip = document.getElementById("strip"), lanes = document.getElementById("lanes");
  const tip = document.getElementById("tip");
  const LABEL = 150, LANE = 34, GAP = 10, AXIS = 24, IDLE = 20;
  const whole = data.tasks.reduce((end, t) => Math.max(end, t[2] + t[3]), 1e-3);
  const rows = data.lanes.map((_, lane) => data.tasks.filter(t => t[0] === lane));
  // per lane: the latest end of all tasks up to one, for finding the first that reaches into the view
  const ends = rows.map(row => { let end = 0; return row.map(t => (end = Math.max(end, t[2] + t[3]))); });
  let from = 0, to = whole;

  // when no core of any device computes
  const idle = [];
  data.tasks.filter(t => data.computing.includes(t[1])).reduce((end, t) => {
    if (end !== null && t[2] - end >= 0.5) idle.push([end, t[2] - end]);
    return Math.max(end === null ? 0 : end, t[2] + t[3]);
  }, null);

  function firstEndingAfter(list, time) {
    let low = 0, high = list.length;
    while (low < high) { const middle = (low + high) >> 1; if (list[middle] < time) low = middle + 1; else high = middle; }
    return low;
  }
  function sized(canvas, height) {
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
    canvas.width = width * ratio; canvas.height = height * ratio; canvas.style.height = height + "px";
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio); pen.clearRect(0, 0, width, height); pen.font = "12px system-ui, sans-serif";
    return [pen, width];
  }
  function shown(us) {
    const step = (to - from) / 8, digits = step >= 100 ? 1 : step >= 10 ? 2 : 4;
    return (us / 1000).toFixed(digits) + " ms";
  }
  function drawStrip() {
    const [pen, width] = sized(strip, 34), scale = (width - LABEL) / whole;
    pen.fillStyle = "#5b6470"; pen.fillText("whole run, " + (whole / 1000).toFixed(1) + " ms", 6, 21);
    for (const t of data.tasks) {
      pen.fillStyle = data.colors[t[1]];
      pen.fillRect(LABEL + t[2] * scale, 8, Math.max(0.3, t[3] * scale), 18);
    }
    pen.fillStyle = "rgba(28,31,36,.14)"; pen.strokeStyle = "#1c1f24";
    pen.fillRect(LABEL + from * scale, 3, Math.max(2, (to - from) * scale), 28);
    pen.strokeRect(LABEL + from * scale, 3, Math.max(2, (to - from) * scale), 28);
  }
  function drawLanes() {
    const height = AXIS + IDLE + GAP + rows.length * (LANE + GAP);
    const [pen, width] = sized(lanes, height), scale = (width - LABEL) / (to - from);
    pen.fillStyle = "#5b6470"; pen.strokeStyle = "#e8ebef";
    for (let i = 0; i <= 8; i++) {
      const x = LABEL + (width - LABEL) * i / 8, us = from + (to - from) * i / 8;
      pen.beginPath(); pen.moveTo(x, AXIS - 6); pen.lineTo(x, height); pen.stroke();
      pen.textAlign = i === 8 ? "right" : i ? "center" : "left"; pen.fillText(shown(us), x, 13);
    }
    pen.textAlign = "left"; pen.fillText("cores idle", 6, AXIS + 14);
    pen.fillStyle = "#e7b3ae";
    for (const [start, length] of idle) {
      if (start > to || start + length < from) continue;
      const left = Math.max(LABEL, LABEL + (start - from) * scale);
      pen.fillRect(left, AXIS + 3, Math.max(0.6, Math.min(width, LABEL + (start + length - from) * scale) - left), IDLE - 6);
    }
    for (const [start, length, color] of data.bubbles) {
      if (start > to || start + length < from) continue;
      const left = Math.max(LABEL, LABEL + (start - from) * scale);
      const right = Math.min(width, LABEL + (start + length - from) * scale);
      pen.fillStyle = color; pen.fillRect(left, AXIS + 3, Math.max(1, right - left), IDLE - 6);
    }
    rows.forEach((row, lane) => {
      const y = AXIS + IDLE + GAP + lane * (LANE + GAP);
      pen.fillStyle = "#1c1f24"; pen.fillText(data.lanes[lane], 6, y + LANE / 2 + 4);
      pen.fillStyle = "#f6f7f9"; pen.fillRect(LABEL, y, width - LABEL, LANE);
      let drawnTo = -1, drawnKind = -1;
      for (let i = firstEndingAfter(ends[lane], from); i < row.length && row[i][2] <= to; i++) {
        const t = row[i], x = LABEL + (t[2] - from) * scale, wide = t[3] * scale;
        const left = Math.max(LABEL, x), right = Math.min(width, x + wide);
        if (right < drawnTo + 0.25 && t[1] === drawnKind) continue;
        drawnTo = Math.max(drawnTo, right); drawnKind = t[1];
        pen.fillStyle = data.colors[t[1]]; pen.fillRect(left, y, Math.max(0.6, right - left - (wide > 4 ? 0.7 : 0)), LANE);
        if (right - left > 44) {
          pen.save(); pen.beginPath(); pen.rect(left, y, right - left - 4, LANE); pen.clip();
          pen.fillStyle = "#fff"; pen.fillText(data.names[t[5]], left + 4, y + 14);
          pen.font = "10px system-ui, sans-serif"; pen.fillText(data.names[t[4]], left + 4, y + 27);
          pen.restore();
        }
      }
    });
  }
  function draw() { drawStrip(); drawLanes(); }
  function view(start, end) {
    const length = Math.min(whole, Math.max(0.5, end - start));
    from = Math.min(Math.max(0, start), whole - length); to = from + length; draw();
  }
  function zoom(factor, at) { view(at - (at - from) * factor, at + (to - at) * factor); }
  function timeAt(event) {
    const box = lanes.getBoundingClientRect(), x = event.clientX - box.left;
    return from + (x - LABEL) / (box.width - LABEL) * (to - from);
  }
  function taskAt(event) {
    const box = lanes.getBoundingClientRect(), y = event.clientY - box.top - AXIS - IDLE - GAP, time = timeAt(event);
    if (event.clientX - box.left < LABEL) return null;
    if (y < 0) {
      if (y < -IDLE - GAP) return null;
      const found = data.bubbles.find(b => b[0] <= time && time <= b[0] + b[1]);
      if (found) return [found[3], found[1], "", 0];
      const gap = idle.find(g => g[0] <= time && time <= g[0] + g[1]);
      return gap ? ["no operator on the cores", gap[1], "", 0] : null;
    }
    const lane = Math.floor(y / (LANE + GAP)), near = 2 * (to - from) / box.width;
    if (lane >= rows.length || y % (LANE + GAP) > LANE) return null;
    let best = null;
    for (let i = firstEndingAfter(ends[lane], time - near); i < rows[lane].length && rows[lane][i][2] <= time + near; i++) {
      const t = rows[lane][i], off = Math.max(t[2] - time, time - t[2] - t[3], 0);
      if (off <= near && (!best || off < best[0])) best = [off, t];
    }
    return best && [data.names[best[1][4]], best[1][3], data.names[best[1][5]], best[1][6]];
  }
  function oneExecution() {
    const numbers = [...new Set(data.tasks.map(t => t[6]))].filter(Boolean).sort((a, b) => a - b);
    if (!numbers.length) { view(0, whole); return; }
    const chosen = numbers[Math.floor(numbers.length / 2)], own = data.tasks.filter(t => t[6] === chosen);
    const start = Math.min(...own.map(t => t[2])), end = Math.max(...own.map(t => t[2] + t[3]));
    const before = data.tasks.filter(t => t[6] && t[6] < chosen).reduce((last, t) => Math.max(last, t[2] + t[3]), 0);
    const margin = Math.min(Math.max(start - before, 0), 4 * (end - start));
    view(start - margin - 0.1 * (end - start), end + 0.4 * (end - start));
  }
  lanes.addEventListener("wheel", event => {
    event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event));
  }, { passive: false });
  let held = null;
  lanes.addEventListener("mousedown", event => { held = [event.clientX, from, to]; });
  window.addEventListener("mouseup", () => { held = null; });
  window.addEventListener("mousemove", event => {
    if (held) {
      const moved = (event.clientX - held[0]) / (lanes.clientWidth - LABEL) * (held[2] - held[1]);
      view(held[1] - moved, held[2] - moved);
    }
  });
  lanes.addEventListener("mousemove", event => {
    const found = taskAt(event);
    tip.style.display = found ? "block" : "none";
    if (!found) return;
    const box = document.getElementById("timeline").getBoundingClientRect();
    tip.textContent = found[0] + (found[2] && found[2] !== found[0] ? " (" + found[2] + ")" : "") + ", "
      + found[1].toFixed(3) + " µs" + (found[3] ? ", execution " + found[3] : "");
    tip.style.left = Math.min(event.clientX - box.left + 12, box.width - 320) + "px";
    tip.style.top = event.clientY - box.top + 14 + "px";
  });
  lanes.addEventListener("mouseleave", () => { tip.style.display = "none"; });
  strip.addEventListener("mousedown", event => {
    const box = strip.getBoundingClientRect(), at = (event.clientX - box.left - LABEL) / (box.width - LABEL) * whole;
    view(at - (to - from) / 2, at + (to - from) / 2);
  });
  document.getElementById("whole").onclick = () => view(0, whole);
  document.getElementById("one").onclick = oneExecution;
  document.getElementById("nearer").onclick = () => zoom(0.5, (from + to) / 2);
  document.getElementById("farther").onclick = () => zoom(2, (from + to) / 2);
  for (const row of document.querySelectorAll("tr.jump")) {
    row.onclick = () => {
      const start = Number(row.dataset.start), length = Number(row.dataset.length);
      view(start - 2 * length, start + 3 * length);
      document.getElementById("timeline").scrollIntoView({ behavior: "smooth", block: "center" });
    };
  }
  window.addEventListener("resize", draw);
  oneExecution();
})();
