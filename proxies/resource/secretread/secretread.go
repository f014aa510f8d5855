// Package secretread is a call for Secrets whose answer has no values: at both ends of live
// access, whether the spoke's owner or the hub wants it so. What is told of a Secret is
// package masking's.
package secretread

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/masking"
	"github.com/argomesh/argomesh/proxies/resource/exchange"
	"github.com/argomesh/argomesh/proxies/resource/mediatype"
	"github.com/argomesh/argomesh/stream/jsonlimit"
)

const (
	// maskTime bounds the wait for an answer that is masked, once it has begun.
	maskTime = 30 * time.Second
	// maskReads is how many answers of an API server are masked at a time, of which each
	// has one Secret in memory; others wait.
	maskReads = 4
	// Bytes is what outlines under way may take at one end; more are answered 429.
	Bytes = 64 << 20
	// BytesOfAgent is what those of one agent may take of it at the hub.
	BytesOfAgent = 16 << 20
	// maxMaskedStatus is the longest Status that is read, and maxMaskedWords the longest
	// message of one, in bytes.
	maxMaskedStatus = 64 << 10
	maxMaskedWords  = 1 << 10
)

var (
	// ErrNotMasked is an answer about Secrets of an agent that does not mask.
	ErrNotMasked = errors.New("the agent does not mask Secrets")
	// errMaskRoom is an answer for which there is no room.
	errMaskRoom = errors.New("too many Secrets are being masked")
)

// Call is a call for Secrets whose answer has no values.
type Call struct {
	Agent identity.AgentName // at the hub
	scope masking.Scope
	Form  masking.Form // in which the caller wants it
	most  int64        // bytes of the answer
}

// Of returns what a call that access.ReadsSecrets asks for, or why it is refused.
func Of(r access.Request, target *url.URL, header http.Header) (*Call, *metav1.Status) {
	m := &Call{scope: masking.One, most: exchange.AnswerLimit(r, false)}
	if r.Verb == "list" {
		m.scope = masking.List
	}
	if m.Form = masking.FormOf(header["Accept"], target.Query().Get("includeObject")); m.Form == masking.NoForm {
		return nil, access.Failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
			"argomesh: masked Secrets come as application/json, or as a Table or the metadata of meta.k8s.io/v1 in JSON")
	}
	if !selectsShown(r.FieldSelector) {
		return nil,
			exchange.BadRequest(errors.New("masked Secrets are selected by metadata.name, metadata.namespace and type alone"))
	}
	return m, nil
}

// selectsShown reports whether a field selector asks for fields that are shown.
func selectsShown(text string) bool {
	selector, err := fields.ParseSelector(text)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(selector.Requirements(), func(r fields.Requirement) bool {
		return !slices.Contains([]string{"metadata.name", "metadata.namespace", "type"}, r.Field)
	})
}

// maskedOptions are what is passed on of the options of a call.
var maskedOptions = []string{
	"fieldSelector", "labelSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch", "timeout",
	"timeoutSeconds",
}

// Target is where the call goes: with the options that say which Secrets, and no others.
func (m *Call) Target(target *url.URL) *url.URL {
	out := *target
	query := target.Query()
	for name := range query {
		if !slices.Contains(maskedOptions, name) {
			query.Del(name)
		}
	}
	out.RawQuery = query.Encode()
	return &out
}

// Ask has the answer come in one form, as a whole.
func (m *Call) Ask(header http.Header, kind string) {
	header.Set("Accept", kind)
	for _, name := range []string{"Accept-Encoding", "If-None-Match", "If-Modified-Since", "If-Match",
		"If-Unmodified-Since", "If-Range", "Range"} {
		header.Del(name)
	}
}

// Masker masks answers at one end.
type Masker struct {
	answers    *prometheus.CounterVec // by result
	reading    chan struct{}          // holds one for each answer of an API server that is read
	maxOfAgent int                    // what one agent may have of Bytes

	mu      sync.Mutex // guards what follows
	used    int
	byAgent map[identity.AgentName]int
}

// NewMasker counts answers by Results, and lets one agent have ofAgent bytes of outlines.
func NewMasker(answers *prometheus.CounterVec, ofAgent int) *Masker {
	return &Masker{answers: answers, reading: make(chan struct{}, maskReads), maxOfAgent: ofAgent,
		byAgent: map[identity.AgentName]int{}}
}

// FromServer masks the answer of an API server.
func (k *Masker) FromServer(ctx context.Context, m *Call, res *http.Response) error {
	select {
	case k.reading <- struct{}{}:
		defer func() { <-k.reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return k.counted(k.answer(m, res, false, func(body io.Reader) (*masking.Outlines, error) {
		if !isPlainly(res, mediatype.Plain) {
			return nil, masking.ErrNoSecrets
		}
		return masking.Read(body, m.scope)
	}))
}

// FromAgent masks the answer of an agent, which it must have masked itself. Its own messages
// are shown, of its API server's only some.
func (k *Masker) FromAgent(m *Call, res *http.Response, itself bool) error {
	if res.StatusCode == http.StatusNotAcceptable && !itself { // its API server does not know the form
		return k.counted(ErrNotMasked)
	}
	return k.counted(k.answer(m, res, itself, func(body io.Reader) (*masking.Outlines, error) {
		if !isPlainly(res, masking.MediaType) {
			return nil, ErrNotMasked
		}
		text, err := io.ReadAll(io.LimitReader(body, int64(masking.Most(m.scope))+1))
		if err != nil {
			return nil, err
		}
		return masking.Parse(text, m.scope)
	}))
}

// isPlainly reports whether an answer is of that kind, and not packed.
func isPlainly(res *http.Response, kind string) bool {
	got, params, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	coding := strings.ToLower(strings.TrimSpace(res.Header.Get("Content-Encoding")))
	return err == nil && got == kind && params["as"] == "" && (coding == "" || coding == "identity")
}

// answer puts what is shown of Secrets, or of a failure, in place of an answer.
func (k *Masker) answer(m *Call, res *http.Response, itself bool,
	read func(io.Reader) (*masking.Outlines, error)) error {
	body := res.Body
	defer func() { _ = body.Close() }() // all of it was read, or it is of no use
	late := time.AfterFunc(maskTime, func() { _ = body.Close() })
	defer late.Stop()
	switch {
	case res.StatusCode >= http.StatusBadRequest:
		return replaceFailure(res, itself)
	case res.StatusCode != http.StatusOK:
		return masking.ErrNoSecrets
	}
	room := masking.Most(m.scope)
	if !k.acquire(m.Agent, room) {
		return errMaskRoom
	}
	outlines, err := read(body)
	if err != nil {
		k.release(m.Agent, room)
		return err
	}
	k.release(m.Agent, room-outlines.Size())
	text, length, err := rendered(outlines, m)
	if err != nil {
		k.release(m.Agent, outlines.Size())
		return err
	}
	replaceAnswer(res, m.Form.ContentType(), length,
		&maskedBody{ReadCloser: text, done: sync.OnceFunc(func() { k.release(m.Agent, outlines.Size()) })})
	return nil
}

func rendered(outlines *masking.Outlines, m *Call) (io.ReadCloser, int64, error) {
	if m.Form != masking.Outlined {
		return outlines.Render(m.Form, m.most, time.Now())
	}
	text, err := outlines.Bytes()
	return io.NopCloser(bytes.NewReader(text)), int64(len(text)), err
}

// replaceAnswer leaves nothing of an answer but its status.
func replaceAnswer(res *http.Response, kind string, length int64, body io.ReadCloser) {
	res.Header = http.Header{}
	res.Header.Set("Content-Type", kind)
	res.Header.Set("Content-Length", strconv.FormatInt(length, 10))
	res.Header.Set("Cache-Control", "no-cache, private")
	res.Header.Set("X-Content-Type-Options", "nosniff")
	res.Body, res.ContentLength, res.Trailer, res.TransferEncoding = body, length, nil, nil
}

// maskedBody gives its room back once it is closed.
type maskedBody struct {
	io.ReadCloser
	done func()
}

// Close ends it.
func (b *maskedBody) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

// shownStatuses are those whose messages repeat what the caller asked, or say what the agent's
// account may not. What fails within an API server may quote what it read.
var shownStatuses = []int{
	http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusGone, http.StatusRequestEntityTooLarge,
	http.StatusTooManyRequests,
}

// replaceFailure puts a Status with known fields in place of a failure. itself says that the
// message is the agent's own.
func replaceFailure(res *http.Response, itself bool) error {
	text, err := io.ReadAll(io.LimitReader(res.Body, maxMaskedStatus+1))
	if err != nil {
		return err
	}
	var answered metav1.Status
	if _, err := jsonlimit.Check(text, jsonlimit.Limits{Depth: 32, Heap: 8 * maxMaskedStatus}); err != nil ||
		len(text) > maxMaskedStatus ||
		utiljson.Unmarshal(text, &answered) != nil || answered.Kind != "Status" {
		answered = metav1.Status{}
	}
	status := access.Failure(int32(res.StatusCode), metav1.StatusReasonUnknown, //nolint:gosec // three digits
		"the API server of the spoke answered "+strconv.Itoa(res.StatusCode)+
			"; what else it says is not shown, since Secrets are masked")
	if itself || slices.Contains(shownStatuses, res.StatusCode) {
		status.Reason = answered.Reason
		status.Message = answered.Message[:min(len(answered.Message), maxMaskedWords)]
		status.Continue, status.ResourceVersion = answered.Continue, answered.ResourceVersion
	}
	if d := answered.Details; d != nil && d.RetryAfterSeconds > 0 {
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: d.RetryAfterSeconds}
	}
	answer, err := json.Marshal(status)
	if err != nil {
		return err
	}
	replaceAnswer(res, mediatype.Plain, int64(len(answer)), io.NopCloser(bytes.NewReader(answer)))
	if status.Details != nil {
		res.Header.Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	return nil
}

// acquire takes room for an agent's outlines, if there is some.
func (k *Masker) acquire(agent identity.AgentName, n int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.used+n > Bytes || k.byAgent[agent]+n > k.maxOfAgent {
		return false
	}
	k.used += n
	k.byAgent[agent] += n
	return true
}

// release gives room back.
func (k *Masker) release(agent identity.AgentName, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used -= n
	if k.byAgent[agent] -= n; k.byAgent[agent] == 0 {
		delete(k.byAgent, agent)
	}
}

// The values of label result.
const (
	maskShown     = "told"
	maskTooMuch   = "too-much"
	maskNoRoom    = "no-room"
	maskNotMasked = "not-masked"
	maskFailed    = "failed"
)

// Results are the values of label result.
func Results() []string {
	return []string{maskShown, maskTooMuch, maskNoRoom, maskNotMasked, maskFailed}
}

// counted counts an answer.
func (k *Masker) counted(err error) error {
	result := maskFailed
	switch {
	case err == nil:
		result = maskShown
	case errors.Is(err, masking.ErrTooMuch):
		result = maskTooMuch
	case errors.Is(err, errMaskRoom):
		result = maskNoRoom
	case errors.Is(err, ErrNotMasked):
		result = maskNotMasked
	}
	k.answers.WithLabelValues(result).Inc()
	return err
}

// Failure is the answer to a call whose answer was not masked; nil when that is not why
// it failed. side is who says so.
func Failure(side access.Side, err error) *metav1.Status {
	who := "argomesh " + side.String() + ": "
	switch {
	case errors.Is(err, masking.ErrTooMuch):
		return access.Failure(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			who+
				"these Secrets are more than can be masked at a time; ask for one by its name, or for fewer with limit, as kubectl does with --chunk-size")
	case errors.Is(err, errMaskRoom):
		return exchange.TooMany(who + errMaskRoom.Error())
	case errors.Is(err, masking.ErrNoSecrets):
		return access.BadGateway(who + "the answer is not one about Secrets, which are masked")
	}
	return nil
}
