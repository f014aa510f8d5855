//go:build linux

package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Page is a tab with cookies of its own. Its methods are called by one goroutine at a time.
type Page struct {
	browser *Browser
	session string
	target  string

	complaints []string // guarded by browser.mu
}

// NewPage opens an empty page, which shares nothing with others.
func (b *Browser) NewPage(ctx context.Context) (*Page, error) {
	var made struct {
		Context string `json:"browserContextId"`
		Target  string `json:"targetId"`
		Session string `json:"sessionId"`
	}
	if err := b.call(ctx, "", "Target.createBrowserContext", map[string]any{}, &made); err != nil {
		return nil, err
	}
	if err := b.call(ctx, "", "Target.createTarget", map[string]any{
		"url": "about:blank", "browserContextId": made.Context, "width": b.cfg.Width, "height": b.cfg.Height,
	}, &made); err != nil {
		return nil, err
	}
	if err := b.call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": made.Target, "flatten": true}, &made); err != nil {
		return nil, err
	}
	p := &Page{browser: b, session: made.Session, target: made.Target}
	b.mu.Lock()
	b.pages[p.session] = p
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		if err := p.call(ctx, domain+".enable", map[string]any{}, nil); err != nil {
			return nil, err
		}
	}
	if err := p.call(ctx, "Emulation.setFocusEmulationEnabled", map[string]any{"enabled": true}, nil); err != nil {
		return nil, err
	}
	err := p.call(ctx, "Emulation.setDeviceMetricsOverride", map[string]any{
		"width": b.cfg.Width, "height": b.cfg.Height, "deviceScaleFactor": 1, "mobile": false,
	}, nil)
	return p, err
}

func (p *Page) call(ctx context.Context, method string, params, result any) error {
	return p.browser.call(ctx, p.session, method, params, result)
}

// event keeps what the page complains of. It is called with browser.mu.
func (p *Page) event(method string, params json.RawMessage) {
	var said struct {
		Entry struct {
			Level, Text, URL string
		} `json:"entry"`
		Exception struct {
			Text      string
			Exception struct{ Description string }
		} `json:"exceptionDetails"`
		Response struct {
			Status int
			URL    string
		} `json:"response"`
	}
	if json.Unmarshal(params, &said) != nil {
		return // of a kind that is not asked for
	}
	switch {
	case method == "Runtime.exceptionThrown":
		p.complaints = append(p.complaints, "exception: "+said.Exception.Text+" "+said.Exception.Exception.Description)
	case method == "Network.responseReceived" && said.Response.Status >= 400:
		p.complaints = append(p.complaints, fmt.Sprintf("%d %s", said.Response.Status, said.Response.URL))
	}
}

// Complaints returns the exceptions of scripts and the answers of 400 and more since it was
// last called.
func (p *Page) Complaints() []string {
	p.browser.mu.Lock()
	defer p.browser.mu.Unlock()
	said := p.complaints
	p.complaints = nil
	return said
}

// Close closes the page.
func (p *Page) Close(ctx context.Context) error {
	return p.browser.call(ctx, "", "Target.closeTarget", map[string]any{"targetId": p.target}, nil)
}

// Go has the page show an address. It returns when the browser has its first bytes.
func (p *Page) Go(ctx context.Context, url string) error {
	var gone struct{ ErrorText string }
	if err := p.call(ctx, "Page.navigate", map[string]any{"url": url}, &gone); err != nil {
		return err
	}
	if gone.ErrorText != "" {
		return fmt.Errorf("%s: %s", url, gone.ErrorText)
	}
	return nil
}

// Eval reads the value of an expression, which may be a promise, into result.
func (p *Page) Eval(ctx context.Context, expression string, result any) error {
	var said struct {
		Result    struct{ Value json.RawMessage }
		Exception *struct {
			Text      string
			Exception struct{ Description string }
		} `json:"exceptionDetails"`
	}
	err := p.call(ctx, "Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &said)
	if err != nil {
		return err
	}
	if said.Exception != nil {
		return fmt.Errorf("%s: %s", said.Exception.Text, said.Exception.Exception.Description)
	}
	if result == nil || len(said.Result.Value) == 0 {
		return nil
	}
	return json.Unmarshal(said.Result.Value, result)
}

// Text returns what of the page a person can read, titles that show on pointing included.
func (p *Page) Text(ctx context.Context) (string, error) {
	var text string
	err := p.Eval(ctx, `document.body ? document.body.innerText : ''`, &text)
	return text, err
}

// URL returns where the page is.
func (p *Page) URL(ctx context.Context) (string, error) {
	var url string
	err := p.Eval(ctx, `location.href`, &url)
	return url, err
}

// Place names an element of a page: a CSS selector, and a text that it shows, the whole of
// it unless Part. The last in the document that fits is meant, which is the innermost.
type Place struct {
	Selector, Shown string
	Part            bool
}

// At is the first place with a selector alone.
func At(selector string) Place { return Place{Selector: selector} }

// Text is an element that shows just a text, without regard to case.
func Text(selector, shown string) Place { return Place{Selector: selector, Shown: shown} }

// Part is an element that shows a text among others.
func Part(selector, shown string) Place { return Place{Selector: selector, Shown: shown, Part: true} }

// finder is the source of a function that finds a Place that can be seen.
const finder = `((selector, shown, part) => {
  const seen = [...document.querySelectorAll(selector)].filter(e => { const r = e.getBoundingClientRect(); return r.width > 0 && r.height > 0; });
  if (!shown) return seen[0];
  const want = shown.toLowerCase();
  const fits = seen.filter(e => { const t = (e.innerText || e.title || '').trim().toLowerCase(); return part ? t.includes(want) : t === want; });
  return fits[fits.length - 1];
})`

func (pl Place) find() string {
	selector, _ := json.Marshal(pl.Selector) // a string never fails to be JSON
	shown, _ := json.Marshal(pl.Shown)       // likewise
	return fmt.Sprintf("%s(%s, %s, %t)", finder, selector, shown, pl.Part)
}

func (pl Place) String() string {
	if pl.Shown == "" {
		return pl.Selector
	}
	return fmt.Sprintf("%s with %q", pl.Selector, pl.Shown)
}

// ErrAbsent is wrapped by the errors of Click and Where for what the page does not show.
var ErrAbsent = errors.New("the page does not show it")

// Shows reports whether the page shows a place.
func (p *Page) Shows(ctx context.Context, place Place) (bool, error) {
	var shown bool
	err := p.Eval(ctx, "!!"+place.find(), &shown)
	return shown, err
}

// where is the middle of a place, which it scrolls into view, once that does not move.
func (p *Page) where(ctx context.Context, place Place) (x, y float64, err error) {
	var at []float64
	err = p.Eval(ctx, `(async () => {
		for (let last = null;;) {
			const e = `+place.find()+`;
			if (!e) return null;
			e.scrollIntoView({block: 'center', inline: 'center'});
			const r = e.getBoundingClientRect();
			if (last && last.x === r.x && last.y === r.y) return [r.x + r.width / 2, r.y + r.height / 2];
			last = r;
			await new Promise(ok => setTimeout(ok, 60));
		}
	})()`, &at)
	if err == nil && len(at) != 2 {
		err = fmt.Errorf("%s: %w", place, ErrAbsent)
	}
	if err != nil {
		return 0, 0, err
	}
	return at[0], at[1], nil
}

// Click clicks into the middle of a place, as a mouse does.
func (p *Page) Click(ctx context.Context, place Place) error {
	x, y, err := p.where(ctx, place)
	if err != nil {
		return err
	}
	for _, kind := range []string{"mouseMoved", "mousePressed", "mouseReleased"} {
		event := map[string]any{"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
		if kind == "mouseMoved" {
			event = map[string]any{"type": kind, "x": x, "y": y}
		}
		if err := p.call(ctx, "Input.dispatchMouseEvent", event, nil); err != nil {
			return err
		}
	}
	return nil
}

// Type types into what has the focus, key by key. A line feed is the key Enter.
func (p *Page) Type(ctx context.Context, text string) error {
	for _, c := range text {
		key, code := string(c), 0
		if c == '\n' {
			key, code = "Enter", enter
		}
		if err := p.press(ctx, key, code, strings.ReplaceAll(string(c), "\n", "\r")); err != nil {
			return err
		}
	}
	return nil
}

// enter is the number of the key Enter. Others need none.
const enter = 13

// press presses a key by its name and number; text is what it types.
func (p *Page) press(ctx context.Context, key string, code int, text string) error {
	for _, kind := range []string{"keyDown", "keyUp"} {
		event := map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "nativeVirtualKeyCode": code}
		if kind == "keyDown" {
			event["text"] = text
		}
		if err := p.call(ctx, "Input.dispatchKeyEvent", event, nil); err != nil {
			return err
		}
	}
	return nil
}

// Fill replaces what is in a field.
func (p *Page) Fill(ctx context.Context, place Place, text string) error {
	if err := p.Click(ctx, place); err != nil {
		return err
	}
	if err := p.Eval(ctx, `(() => { const e = `+place.find()+`; e.focus(); if (e.select) e.select(); })()`, nil); err != nil {
		return err
	}
	return p.Type(ctx, text)
}

// Picture returns the page as a PNG file.
func (p *Page) Picture(ctx context.Context) ([]byte, error) {
	var shot struct{ Data []byte }
	err := p.call(ctx, "Page.captureScreenshot", map[string]any{"format": "png", "optimizeForSpeed": false}, &shot)
	return slices.Clip(shot.Data), err
}

// Wait waits until an expression is true, which it looks at every 20 ms in the page itself,
// over loads of other pages. what says in the error what was waited for.
func (p *Page) Wait(ctx context.Context, what, expression string) error {
	source := `new Promise(ok => { const end = Date.now() + 1000; const look = () => { let is = false; try { is = !!(` + expression + `) } catch (e) {}
		if (is || Date.now() > end) ok(is); else setTimeout(look, 20); }; look(); })`
	for {
		is := false
		slice, cancel := context.WithTimeout(ctx, waitSlice)
		err := p.Eval(slice, source, &is)
		cancel()
		switch {
		case err == nil && is:
			return nil
		case ctx.Err() == nil && (err == nil || errors.Is(err, context.DeadlineExceeded) || isLoad(err)):
			continue
		}
		shown, _ := p.Text(context.WithoutCancel(ctx)) // beside the first error
		return fmt.Errorf("wait for %s: %w; the page shows:\n%s", what, errors.Join(err, ctx.Err()), shown)
	}
}

// waitSlice is after how long a page is asked again that gives no answer, such as one that
// is about to be another.
const waitSlice = 3 * time.Second

// isLoad reports whether an expression ended since another page was loaded.
func isLoad(err error) bool {
	text := err.Error()
	return strings.Contains(text, "context was destroyed") || strings.Contains(text, "navigated or closed") || strings.Contains(text, "Cannot find context") ||
		strings.Contains(text, "Promise was collected")
}

// WaitText waits until the page shows a text, without regard to case.
func (p *Page) WaitText(ctx context.Context, text string) error {
	return p.Wait(ctx, fmt.Sprintf("the text %q", text), has(text))
}

// WaitNoText waits until the page does not show a text.
func (p *Page) WaitNoText(ctx context.Context, text string) error {
	return p.Wait(ctx, fmt.Sprintf("no text %q", text), "!"+has(text))
}

func has(text string) string {
	quoted, _ := json.Marshal(strings.ToLower(text)) // a string never fails to be JSON
	return "document.body.innerText.toLowerCase().includes(" + string(quoted) + ")"
}

// WaitFor waits until the page shows a place.
func (p *Page) WaitFor(ctx context.Context, place Place) error {
	return p.Wait(ctx, place.String(), place.find())
}

// WaitClick waits for a place and clicks it.
func (p *Page) WaitClick(ctx context.Context, place Place) error {
	if err := p.WaitFor(ctx, place); err != nil {
		return err
	}
	return p.Click(ctx, place)
}
