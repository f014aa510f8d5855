package resource_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/audit"
	"github.com/argomesh/argomesh/proxies/masking"
	"github.com/argomesh/argomesh/proxies/resource"
)

// hunter is the value that no one is told.
const hunter = "hunter2-of-the-database"

// leaks reports whether text has the value in some form.
func leaks(text string) bool {
	for _, form := range []string{hunter, base64.StdEncoding.EncodeToString([]byte(hunter)), base64.URLEncoding.EncodeToString([]byte(hunter)), "hunter2"} {
		if strings.Contains(text, form) {
			return true
		}
	}
	return false
}

// aSecret has the value wherever it can.
func aSecret(name string) *corev1.Secret {
	applied := `{"stringData":{"password":"` + hunter + `"}}`
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "web",
			Annotations:   map[string]string{"note": hunter, corev1.LastAppliedConfigAnnotation: applied},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(applied)}},
		},
		Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"password": []byte(hunter)}, StringData: map[string]string{"password": hunter},
	}
}

// secretServer is an API server with Secrets, which answers as the Accept says.
func secretServer(t *testing.T) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Warning", `299 - "`+hunter+`"`)
		var answer any = aSecret("s")
		switch {
		case strings.HasSuffix(r.URL.Path, "/secrets"):
			list := &corev1.SecretList{TypeMeta: metav1.TypeMeta{Kind: "SecretList", APIVersion: "v1"}}
			for _, name := range []string{"a", "b"} {
				list.Items = append(list.Items, *aSecret(name))
			}
			answer = list
		case strings.HasSuffix(r.URL.Path, "/gone"):
			w.WriteHeader(http.StatusNotFound)
			answer = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 404, Reason: "NotFound", Message: `secrets "gone" not found`,
				Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: hunter}}}}
		case strings.HasSuffix(r.URL.Path, "/broken"):
			w.WriteHeader(http.StatusInternalServerError)
			answer = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 500, Message: "cannot decode " + hunter}
		}
		if strings.Contains(r.Header.Get("Accept"), masking.MediaType) {
			w.WriteHeader(http.StatusNotAcceptable)
			answer = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 406, Message: "only the following media types are accepted"}
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}
}

const tableAccept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"

// Either side masks, whatever the other has, and each client gets what it reads, without a
// value.
func TestMaskedSecrets(t *testing.T) {
	t.Parallel()
	masked := everything()
	masked.Secrets = v1alpha1.SecretsMasked
	for name, tt := range map[string]struct {
		with settings
		by   audit.Side
	}{
		"the hub":   {settings{hubAccess: &masked}, audit.Hub},
		"the spoke": {settings{spokeAccess: &masked}, audit.Spoke},
		"both":      {settings{hubAccess: &masked, spokeAccess: &masked}, audit.Hub},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, secretServer(t), tt.with)
			calls := 0
			ask := func(accept, path string) (answer, string) {
				t.Helper()
				r := w.request(t.Context(), http.MethodGet, path, nil)
				r.Header.Set("Accept", accept)
				r.Header.Set("Accept-Encoding", "gzip")
				res, body := w.do(r)
				calls++
				if leaks(body) || leaks(fmt.Sprint(res.Header, res.Trailer)) {
					t.Errorf("%s as %q is answered %v %s", path, accept, res.Header, body)
				}
				return res, body
			}
			res, body := ask("application/json", "/api/v1/namespaces/web/secrets/s?pretty=true")
			var got corev1.Secret
			if err := json.Unmarshal([]byte(body), &got); err != nil || res.Code != http.StatusOK {
				t.Fatalf("%d %s: %v", res.Code, body, err)
			}
			if string(got.Data["password"]) != strings.Repeat("*", len(hunter)) || got.Annotations[masking.Annotation] != "password: 23 bytes" {
				t.Errorf("it is %s", body)
			}
			asked := w.calls()[0]
			if asked.Header.Get("Accept") != "application/json" || asked.URL.RawQuery != "" || asked.Header.Get("Accept-Encoding") != "" {
				t.Errorf("the API server was asked for %q with %q %q", asked.Header["Accept"], asked.URL.RawQuery, asked.Header["Accept-Encoding"])
			}
			for _, include := range []string{"", "?includeObject=None", "?includeObject=Metadata", "?includeObject=Object"} {
				res, body = ask(tableAccept, "/api/v1/namespaces/web/secrets"+include)
				var table metav1.Table
				if err := json.Unmarshal([]byte(body), &table); err != nil || len(table.Rows) != 2 || table.Kind != "Table" || !strings.Contains(res.Header.Get("Content-Type"), "as=Table") {
					t.Errorf("%d %s: %v", res.Code, body, err)
				}
			}
			for _, accept := range []string{
				"", "*/*", "application/vnd.kubernetes.protobuf,application/json",
				"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
			} {
				if res, body := ask(accept, "/api/v1/secrets?limit=5&labelSelector=a&fieldSelector=type%3DOpaque&includeObject=Object"); res.Code != http.StatusOK || !strings.Contains(body, `"name":"b"`) {
					t.Errorf("%q: %d %s", accept, res.Code, body)
				}
			}
			for _, accept := range []string{"application/vnd.kubernetes.protobuf", "application/yaml", "application/cbor", "application/json;as=Secret;g=meta.k8s.io;v=v1"} {
				if res, body := ask(accept, "/api/v1/namespaces/web/secrets/s"); res.Code != http.StatusNotAcceptable {
					t.Errorf("%q: %d %s", accept, res.Code, body)
				}
			}
			ask(masking.MediaType, "/api/v1/namespaces/web/secrets/s")
			if res, body := ask("application/json", "/api/v1/secrets?fieldSelector=data.password%3D"+hunter[:3]); res.Code != http.StatusBadRequest {
				t.Errorf("a search is answered %d %s", res.Code, body)
			}
			if res, body := ask("application/json", "/api/v1/namespaces/web/secrets/gone"); res.Code != http.StatusNotFound || status(t, body).Message != `secrets "gone" not found` {
				t.Errorf("%d %s", res.Code, body)
			}
			if res, body := ask("application/json", "/api/v1/namespaces/web/secrets/broken"); res.Code != http.StatusInternalServerError || !strings.Contains(status(t, body).Message, "since Secrets are masked") {
				t.Errorf("%d %s", res.Code, body)
			}
			for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead} {
				if res, body := w.do(w.request(t.Context(), method, "/api/v1/namespaces/web/secrets/s?dryRun=All", nil)); res.Code != http.StatusForbidden {
					t.Errorf("%s: %d %s", method, res.Code, body)
				}
				calls++
			}
			if res, body := ask("application/json", "/api/v1/secrets?watch=true"); res.Code != http.StatusForbidden {
				t.Errorf("a watch: %d %s", res.Code, body)
			}
			records := w.records.wait(t, audit.End, calls)
			if records[0].Masked != tt.by || records[0].Decision != audit.Allow {
				t.Errorf("the audit says %+v", records[0])
			}
		})
	}
}

// A hub that masks passes nothing on of an agent that does not: neither of an older
// release, whose API server refuses, nor of one that was stolen.
func TestHubMasksWhateverTheAgentAnswers(t *testing.T) {
	t.Parallel()
	masked := everything()
	masked.Secrets = v1alpha1.SecretsMasked
	secret, err := json.Marshal(aSecret("s"))
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(secret); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	say := func(code int, header http.Header, body []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for name, values := range header {
				w.Header()[name] = values
			}
			w.WriteHeader(code)
			_, _ = w.Write(body) // the hub may have left
		}
	}
	kind := func(kind string, more ...string) http.Header {
		h := http.Header{"Content-Type": {kind}}
		for i := 0; i < len(more); i += 2 {
			h.Set(more[i], more[i+1])
		}
		return h
	}
	for name, tt := range map[string]struct {
		agent http.HandlerFunc
		code  int
		says  string
	}{
		"an older release":       {secretServer(t), 403, "is of a release that does not mask Secrets: upgrade it"},
		"a Secret":               {say(200, kind("application/json"), secret), 403, "does not mask"},
		"a Secret as a Table":    {say(200, kind("application/json;as=Table;g=meta.k8s.io;v=v1"), secret), 403, "does not mask"},
		"a Secret as outlines":   {say(200, kind(masking.MediaType), append(secret, '\n')), 502, "is not one about Secrets"},
		"protobuf":               {say(200, kind("application/vnd.kubernetes.protobuf"), secret), 403, "does not mask"},
		"gzip":                   {say(200, kind(masking.MediaType, "Content-Encoding", "gzip"), packed.Bytes()), 403, "does not mask"},
		"no kind":                {say(200, nil, secret), 403, "does not mask"},
		"another status":         {say(203, kind(masking.MediaType), append(secret, '\n')), 502, "is not one about Secrets"},
		"no content":             {say(204, kind(masking.MediaType, "X-Value", hunter), nil), 502, "is not one about Secrets"},
		"not modified":           {say(304, kind(masking.MediaType, "Etag", hunter), nil), 502, "is not one about Secrets"},
		"a failure with details": {say(409, kind("application/json"), []byte(`{"kind":"Status","apiVersion":"v1","message":"`+hunter+`","details":{"causes":[{"message":"`+hunter+`"}]}}`)), 409, "since Secrets are masked"},
		"a failure that is none": {say(500, kind("application/json"), secret), 500, "since Secrets are masked"},
		"a long failure":         {say(500, kind("application/json"), bytes.Repeat(secret, 1000)), 500, "since Secrets are masked"},
		"a line of outlines":     {say(200, kind(masking.MediaType, "X-Value", hunter, "Set-Cookie", hunter, "Trailer", "X-Late"), []byte(`{"name":"s","sizes":{"a":3}}`+"\n")), 200, "Kioq"},
		"longer than any":        {say(200, kind(masking.MediaType), bytes.Repeat([]byte(`{"name":"s"}`+"\n"), 100_000)), 413, "ask for one by its name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(tt.agent)
			t.Cleanup(server.Close)
			w := start(t, secretServer(t), settings{hubAccess: &masked, hub: func(c *resource.HubConfig) {
				c.Dial = func(ctx context.Context, _ identity.AgentName) (net.Conn, error) {
					var d net.Dialer
					return d.DialContext(ctx, "tcp", server.Listener.Addr().String())
				}
			}})
			res, body := w.get("/api/v1/namespaces/web/secrets/s")
			if res.Code != tt.code || !strings.Contains(body, tt.says) {
				t.Errorf("%d %s, want %d and %q", res.Code, body, tt.code, tt.says)
			}
			if leaks(body) || leaks(fmt.Sprint(res.Header, res.Trailer)) {
				t.Errorf("it is passed on: %v %s", res.Header, body)
			}
			record := w.records.wait(t, audit.End, 1)[0]
			if record.Masked != audit.Hub || (tt.code == 403 && (record.Decision != audit.Deny || record.Rule != access.RuleSecrets || record.DecidedBy != audit.Hub)) {
				t.Errorf("the audit says %+v", record)
			}
		})
	}
}
