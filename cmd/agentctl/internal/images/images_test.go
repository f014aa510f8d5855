package images

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestOf(t *testing.T) {
	t.Parallel()
	pods := func(kind string, images ...any) map[string]any {
		var list []any
		for _, image := range images {
			list = append(list, map[string]any{"image": image})
		}
		return map[string]any{kind: list}
	}
	deployment := func(pod map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": pod}}}}
	}
	got := Of([]*unstructured.Unstructured{
		deployment(pods("initContainers", "b")), deployment(pods("containers", "c", "a", "b")),
		{Object: map[string]any{"kind": "Role"}},
	})
	if want := []string{"a", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAsk(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v2/":
		case strings.HasPrefix(r.URL.Path, "/v2/there/"):
			w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
			w.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("0", 64))
			w.Header().Set("Content-Length", "2")
		case strings.HasPrefix(r.URL.Path, "/v2/private/"):
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	away := httptest.NewServer(http.NotFoundHandler())
	gone := strings.TrimPrefix(away.URL, "http://") + "/x:1"
	away.Close()
	got := Ask(t.Context(), []string{host + "/there/a:1", host + "/none/b:1", host + "/private/c:1", gone, "NO IMAGE"})
	if want := []string{host + "/none/b:1"}; !slices.Equal(got.Missing, want) {
		t.Errorf("missing are %q, want %q", got.Missing, want)
	}
	if err := got.Refusal(); err == nil || !strings.Contains(err.Error(), host+"/none/b:1") || strings.Contains(err.Error(), "there") {
		t.Errorf("the refusal is %v", err)
	}
	for _, image := range []string{host + "/private/c:1", gone, "NO IMAGE"} {
		if got.Unasked[image] == nil {
			t.Errorf("%s counts as there, or as missing", image)
		}
	}
	if lines := got.Lines(); len(lines) != 3 || !strings.Contains(strings.Join(lines, "\n"), gone+" could not be asked from here") ||
		!strings.Contains(lines[0], "run this again") {
		t.Errorf("it says %q", lines)
	}
	if len(got.Unasked) != 3 || (Answer{}).Refusal() != nil {
		t.Errorf("got %+v", got)
	}
}

func TestByTag(t *testing.T) {
	t.Parallel()
	if got, want := ByTag([]string{"a:1", "b:1@sha256:0", "c@sha256:0", "d"}), []string{"a:1", "d"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
