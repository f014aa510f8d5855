package kube_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// The replies are those of kube-apiserver 1.36, shortened.
const (
	notFound       = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"applications.argoproj.io \"a\" not found","reason":"NotFound","details":{"name":"a","group":"argoproj.io","kind":"applications"},"code":404}`
	noNamespace    = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"namespaces \"argocd\" not found","reason":"NotFound","details":{"name":"argocd","kind":"namespaces"},"code":404}`
	alreadyExists  = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"applications.argoproj.io \"a\" already exists","reason":"AlreadyExists","details":{"name":"a","group":"argoproj.io","kind":"applications"},"code":409}`
	modified       = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Operation cannot be fulfilled on applications.argoproj.io \"a\": the object has been modified; please apply your changes to the latest version and try again","reason":"Conflict","details":{"name":"a","group":"argoproj.io","kind":"applications"},"code":409}`
	anotherUID     = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Operation cannot be fulfilled on applications.argoproj.io \"a\": StorageError: invalid object, Code: 4, Key: /registry/argoproj.io/applications/argocd/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: nope, UID in object meta: b8d6fb25-ef96-4459-9192-003192914af8","reason":"Conflict","details":{"name":"a","group":"argoproj.io","kind":"applications"},"code":409}`
	invalid        = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Application.argoproj.io \"a\" is invalid: [spec.destination: Required value, spec.project: Required value]","reason":"Invalid","details":{"name":"a","group":"argoproj.io","kind":"Application","causes":[{"reason":"FieldValueRequired","message":"Required value","field":"spec.destination"},{"reason":"FieldValueRequired","message":"Required value","field":"spec.project"}]},"code":422}`
	badRequest     = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"the namespace of the provided object does not match the namespace sent on the request","reason":"BadRequest","code":400}`
	denied         = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"admission webhook \"x.example.com\" denied the request: no","reason":"Forbidden","code":403}`
	terminating    = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"applications.argoproj.io \"a\" is forbidden: unable to create new content in namespace argocd because it is being terminated","reason":"Forbidden","details":{"name":"a","group":"argoproj.io","kind":"applications","causes":[{"reason":"NamespaceTerminating","message":"namespace argocd is being terminated","field":"metadata.namespace"}]},"code":403}`
	webhookAway    = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Internal error occurred: failed calling webhook \"x.example.com\": connect: connection refused","reason":"InternalError","details":{"causes":[{"message":"failed calling webhook"}]},"code":500}`
	entityTooLarge = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Request entity too large: limit is 3145728","reason":"RequestEntityTooLarge","code":413}`
	etcdTooLarge   = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"etcdserver: request is too large","code":500}`
	rpcTooLarge    = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"rpc error: code = ResourceExhausted desc = trying to send message larger than max (2100489 vs. 2097152)","code":500}`
	etcdFull       = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"etcdserver: mvcc: database space exceeded","code":500}`
	rpcBusy        = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"rpc error: code = ResourceExhausted desc = etcdserver: too many requests","code":500}`
	unauthorized   = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`
	busy           = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too many requests","reason":"TooManyRequests","code":429}`
	noMethod       = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"update is not supported","reason":"MethodNotAllowed","code":405}`
	serverTimeout  = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"timed out","reason":"Timeout","code":504}`
)

func TestErrorKinds(t *testing.T) {
	tests := map[string]struct {
		code   int
		body   string
		want   error
		create error // where it differs
	}{
		"no such object":                 {code: 404, body: notFound, want: stream.ErrNotFound, create: stream.ErrRefused},
		"no such namespace":              {code: 404, body: noNamespace, want: stream.ErrNotFound, create: stream.ErrRefused},
		"no such resource":               {code: 404, body: "404 page not found\n", want: stream.ErrUnavailable},
		"a proxy that knows no api":      {code: 404, body: "<html>nothing here</html>", want: stream.ErrUnavailable},
		"object exists":                  {code: 409, body: alreadyExists, want: stream.ErrConflict},
		"object was modified":            {code: 409, body: modified, want: stream.ErrConflict},
		"object has another uid":         {code: 409, body: anotherUID, want: stream.ErrConflict},
		"invalid":                        {code: 422, body: invalid, want: stream.ErrRefused},
		"bad request":                    {code: 400, body: badRequest, want: stream.ErrRefused},
		"denied by admission":            {code: 403, body: denied, want: stream.ErrRefused},
		"namespace is terminating":       {code: 403, body: terminating, want: stream.ErrRefused},
		"method not supported":           {code: 405, body: noMethod, want: stream.ErrRefused},
		"too large for the api server":   {code: 413, body: entityTooLarge, want: stream.ErrRefused},
		"too large for etcd":             {code: 500, body: etcdTooLarge, want: stream.ErrRefused},
		"too large for etcd's client":    {code: 500, body: rpcTooLarge, want: stream.ErrRefused},
		"etcd is full":                   {code: 500, body: etcdFull, want: stream.ErrUnavailable},
		"etcd is busy":                   {code: 500, body: rpcBusy, want: stream.ErrUnavailable},
		"admission does not answer":      {code: 500, body: webhookAway, want: stream.ErrUnavailable},
		"not authenticated":              {code: 401, body: unauthorized, want: stream.ErrUnavailable},
		"api server is busy":             {code: 429, body: busy, want: stream.ErrUnavailable},
		"api server timed out":           {code: 504, body: serverTimeout, want: stream.ErrUnavailable},
		"api server is starting":         {code: 503, body: "", want: stream.ErrUnavailable},
		"a proxy that has no api server": {code: 502, body: "<html>bad gateway</html>", want: stream.ErrUnavailable},
	}
	server := newAPIServer(t)
	s := start(t, server.URL)
	s.waitSynced()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server.mu.Lock()
			server.fail = status(test.code, test.body)
			server.mu.Unlock()
			if test.create == nil {
				test.create = test.want
			}
			wantKind(t, "Read()", second(s.Read(t.Context(), key("a"))), test.want)
			wantKind(t, "Update()", second(s.Update(t.Context(), backends.Object{Key: key("a"), UID: "x", ResourceVersion: "1"}, content("a"))), test.want)
			wantKind(t, "Delete()", s.Delete(t.Context(), key("a"), backends.Preconditions{}), test.want)
			wantKind(t, "Create()", second(s.Create(t.Context(), key("a"), content("a"))), test.create)
		})
	}
}

func TestErrorsOfTheNetwork(t *testing.T) {
	server := newAPIServer(t)
	s := start(t, server.URL)
	s.waitSynced()
	server.mu.Lock()
	server.fail = func(w http.ResponseWriter, _ *http.Request) bool {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return true
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		return true
	}
	server.mu.Unlock()
	wantKind(t, "Create() on a connection that breaks", second(s.Create(t.Context(), key("a"), content("a"))), stream.ErrUnavailable)
	if err := server.Listener.Close(); err != nil {
		t.Error(err)
	}
	server.CloseClientConnections()
	wantKind(t, "Create() without a server", second(s.Create(t.Context(), key("a"), content("a"))), stream.ErrUnavailable)
}

func wantKind(t *testing.T, call string, err, want error) {
	t.Helper()
	for _, kind := range []error{stream.ErrNotFound, stream.ErrConflict, stream.ErrRefused, stream.ErrUnavailable} {
		if errors.Is(err, kind) != (kind == want) { //nolint:errorlint // is it this very kind?
			t.Errorf("%s = %v, want %v", call, err, want)
			return
		}
	}
}

func TestErrorsCarryNoContent(t *testing.T) {
	const secret = "hunter2"
	body := `{\"apiVersion\":\"argoproj.io/v1alpha1\",\"spec\":{\"source\":{\"helm\":{\"values\":\"password: ` + secret + strings.Repeat("x", 5000) + `\"}}}}`
	quoted := strings.ReplaceAll(strings.ReplaceAll(body, `\"`, `\\\"`), `\\\\`, `\\`)
	cause := `{"reason":"FieldValueInvalid","message":"Invalid value: \"` + quoted + `\": json: cannot unmarshal number","field":"patch"}`
	reply := `{"kind":"Status","apiVersion":"v1","status":"Failure","message":" \"\" is invalid: patch: Invalid value: \"` + quoted + `\": json: cannot unmarshal number","reason":"Invalid","details":{"causes":[` + cause + `,` + cause + `]},"code":422}`
	server := newAPIServer(t)
	s := start(t, server.URL)
	s.waitSynced()
	server.mu.Lock()
	server.fail = status(http.StatusUnprocessableEntity, reply)
	server.mu.Unlock()
	_, err := s.Create(t.Context(), key("a"), content("a"))
	if want := "create Application argocd/a: refused: patch: Invalid value: json: cannot unmarshal number"; err == nil || err.Error() != want {
		t.Errorf("Create() = %.300v, want %s", err, want)
	}
	server.mu.Lock()
	server.fail = status(http.StatusBadRequest, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"`+strings.Repeat("y", 10000)+`","reason":"BadRequest","code":400}`)
	server.mu.Unlock()
	if _, err := s.Create(t.Context(), key("a"), content("a")); err == nil || len(err.Error()) > 1200 {
		t.Errorf("Create() has an error of %d bytes", len(err.Error()))
	}
}
