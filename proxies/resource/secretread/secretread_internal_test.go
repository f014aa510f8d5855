package secretread

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/masking"
	"github.com/argomesh/argomesh/proxies/resource/exchange"
)

// outlines of one agent have some room and those of all more; what is beyond is refused and
// counted, and room comes back with the end of each answer.
func TestMaskRoom(t *testing.T) {
	answers := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "answers_total"}, []string{"result"})
	k := NewMasker(answers, BytesOfAgent)
	name := func(text string) identity.AgentName {
		n, err := identity.ParseAgentName(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	one, other := name("edge-1"), name("edge-2")
	answer := func(of identity.AgentName) (*http.Response, error) {
		body := "{}\n" + strings.Repeat(`{"name":"a"}`+"\n", 3)
		res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {masking.MediaType}}, Body: io.NopCloser(strings.NewReader(body))}
		return res, k.FromAgent(&Call{Agent: of, scope: masking.List, Form: masking.Plain, most: exchange.MaxListAnswer}, res, false)
	}
	refused := func(of identity.AgentName) error {
		res, err := answer(of)
		_ = res.Body.Close() // never fails
		return err
	}
	for k.acquire(one, masking.MaxOutlines) {
	}
	if err := refused(one); !errors.Is(err, errMaskRoom) {
		t.Errorf("an agent without room: %v", err)
	}
	if n := testutil.ToFloat64(answers.WithLabelValues(maskNoRoom)); n != 1 {
		t.Errorf("%v are counted", n)
	}
	res, err := answer(other)
	if err != nil {
		t.Fatalf("another agent: %v", err)
	}
	if k.byAgent[other] == 0 || k.byAgent[other] > 100 {
		t.Errorf("an answer under way takes %d bytes", k.byAgent[other])
	}
	for range 2 { // as some do
		_ = res.Body.Close() // never fails
	}
	if k.byAgent[other] != 0 || k.used != k.byAgent[one] {
		t.Errorf("%d bytes are taken of %d", k.byAgent[other], k.used)
	}
	for i := range 10 {
		k.acquire(name("more-"+string(rune('a'+i))), BytesOfAgent)
	}
	if k.used > Bytes {
		t.Errorf("all together take %d bytes", k.used)
	}
	if err := refused(other); !errors.Is(err, errMaskRoom) {
		t.Errorf("a hub without room: %v", err)
	}
	if status := Failure(1, errMaskRoom); status == nil || status.Code != http.StatusTooManyRequests || status.Details.RetryAfterSeconds == 0 {
		t.Errorf("the caller is told %+v", status)
	}
}
