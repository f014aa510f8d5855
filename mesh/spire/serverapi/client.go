package serverapi

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/argomesh/argomesh/mesh/spire"

	bundlev1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/bundle/v1"
	entryv1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/entry/v1"
	trustdomainv1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/trustdomain/v1"
	"github.com/spiffe/spire-api-sdk/proto/spire/api/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/argomesh/argomesh/stream/protolimit"
)

const (
	// maxSocketPathBytes is the longest path a unix socket can have on Linux, in
	// bytes (unix(7): 108 with the closing zero).
	maxSocketPathBytes = 107
	unixScheme         = "unix://"

	defaultCallTimeout = 15 * time.Second
	defaultPageSize    = 500
	// maxBatchItems and maxBatchBytes bound one request; a single item may be longer
	// than the latter, up to maxMessageBytes. A server reads 4 MiB.
	maxBatchItems = 50
	maxBatchBytes = 1 << 20
	// maxMessageBytes bounds one answer: a page of entries with many selectors.
	maxMessageBytes = 16 << 20
	// maxReplyHeap bounds what an answer takes once it is decoded. It is counted before.
	maxReplyHeap = 24 << 20
	// maxReplyKeyBytes bounds the certificates and keys of one answer together, since
	// crypto/x509 makes up to eighty times its bytes of one. maxBundlePage is how many
	// bundles are asked for at once, so that each has room for some fifteen roots.
	maxReplyKeyBytes = 768 << 10
	maxBundlePage    = 50
	// maxListed bounds a list that never ends.
	maxListed = 1 << 20
	// maxServerText bounds what of a server's words an error repeats, in bytes.
	maxServerText = 300
)

// ClientConfig holds what a Client needs. Fields without a stated default are required.
type ClientConfig struct {
	// Address is where the server's API is: unix:///absolute/path, or host:port.
	Address string
	// Credentials are for host:port: they present the SVID of an administrator and
	// accept a server that presents [spire.ServerID]. For a unix socket they are nil, since
	// anyone who may open it is an administrator.
	Credentials credentials.TransportCredentials
	// CallTimeout bounds each call. Zero means 15 s.
	CallTimeout time.Duration
	// PageSize is how many entries one answer lists at most. Zero means 500.
	PageSize int32
}

// Client speaks to the API of one SPIRE server. Its methods may be called from several
// goroutines. Close it.
type Client struct {
	conn        *grpc.ClientConn
	address     string
	callTimeout time.Duration
	pageSize    int32
	entries     entryv1.EntryClient
	bundles     bundlev1.BundleClient
	domains     trustdomainv1.TrustDomainClient
}

// ParseAddress returns the target for gRPC of an address as [ClientConfig] has it, and
// whether it is a unix socket. The error wraps [ErrInvalid].
func ParseAddress(address string) (target string, local bool, err error) {
	bad := func(problem string) (string, bool, error) {
		return "", false, fmt.Errorf("spire server %q %s: write unix:///absolute/path or host:port: %w", address, problem,
			spire.ErrInvalid)
	}
	if path, isUnix := strings.CutPrefix(address, unixScheme); isUnix {
		switch {
		case !filepath.IsAbs(path):
			return bad("is not an absolute path (three slashes after unix:)")
		case len(path) > maxSocketPathBytes:
			return bad(fmt.Sprintf("has a path of %d bytes, a unix socket allows %d", len(path), maxSocketPathBytes))
		case strings.ContainsAny(path, "?#%"):
			return bad("has more than a path")
		}
		return "unix://" + path, true, nil
	}
	u, err := url.Parse("//" + address)
	if err != nil || u.Host != address || u.Hostname() == "" || u.Port() == "" {
		return bad("is neither")
	}
	return "dns:///" + address, false, nil
}

// NewClient checks cfg. Nothing is contacted before the first call.
func NewClient(cfg ClientConfig) (*Client, error) {
	target, local, err := ParseAddress(cfg.Address)
	if err != nil {
		return nil, err
	}
	switch {
	case local && cfg.Credentials != nil:
		return nil, fmt.Errorf("spire server %s: a unix socket takes no credentials: %w", cfg.Address, spire.ErrInvalid)
	case !local && cfg.Credentials == nil:
		return nil, fmt.Errorf("spire server %s: over TCP it asks for the SVID of an administrator: %w", cfg.Address,
			spire.ErrInvalid)
	case local:
		cfg.Credentials = insecure.NewCredentials() // as the server has it: the file's mode is the lock
	}
	if cfg.CallTimeout == 0 {
		cfg.CallTimeout = defaultCallTimeout
	}
	if cfg.PageSize == 0 {
		cfg.PageSize = defaultPageSize
	}
	if cfg.PageSize < 0 || cfg.CallTimeout < 0 {
		return nil, fmt.Errorf("spire client: page size and timeout must not be negative: %w", spire.ErrInvalid)
	}
	conn, err := grpc.NewClient(target,
		grpc.WithTransportCredentials(cfg.Credentials),
		grpc.WithNoProxy(),              // an HTTP proxy for the Web is not meant for this
		grpc.WithDisableServiceConfig(), // nor does DNS say how to call
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes),
			grpc.ForceCodecV2(protolimit.Codec{Heap: maxReplyHeap})),
	)
	if err != nil {
		return nil, fmt.Errorf("spire server %s: %w", cfg.Address, err)
	}
	return &Client{
		conn: conn, address: cfg.Address, callTimeout: cfg.CallTimeout, pageSize: cfg.PageSize,
		entries: entryv1.NewEntryClient(conn), bundles: bundlev1.NewBundleClient(conn),
		domains: trustdomainv1.NewTrustDomainClient(conn),
	}, nil
}

// Close ends the connection. Calls that are under way fail.
func (c *Client) Close() error { return c.conn.Close() }

// unary is a method of a generated client.
type unary[Q, A any] func(context.Context, *Q, ...grpc.CallOption) (*A, error)

// call calls method within the timeout of a call, and gives errors their kind.
func call[Q, A any](ctx context.Context, c *Client, doing string, method unary[Q, A], request *Q) (*A, error) {
	ctx, cancel := context.WithTimeout(ctx, c.callTimeout)
	defer cancel()
	answer, err := method(ctx, request)
	if err == nil {
		return answer, nil
	}
	st := status.Convert(err)
	kind := kindOf(st.Code())
	if kind == nil {
		kind = spire.ErrReply
	}
	if st.Code() == codes.Canceled {
		kind = context.Canceled
	}
	return nil, fmt.Errorf("%s: spire server %s: %s: %w", doing, c.address, clean(st.Message()), kind)
}

// kindOf is the one place where codes become errors: those of a call and those of one
// item of a batch. Nil means that the code says nothing we know.
func kindOf(code codes.Code) error {
	switch code {
	case codes.InvalidArgument:
		return spire.ErrInvalid
	case codes.NotFound:
		return spire.ErrNotFound
	case codes.AlreadyExists:
		return spire.ErrExists
	case codes.PermissionDenied, codes.Unauthenticated:
		return spire.ErrDenied
	case codes.FailedPrecondition:
		return spire.ErrInUse
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted:
		return spire.ErrUnavailable
	}
	return nil
}

// clean returns what a server says as one line of bounded length.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxServerText {
		text = strings.ToValidUTF8(text[:maxServerText], "") + "…"
	}
	return text
}

// ItemError is what the server says of one item of a batch whose call is OK. It wraps
// the kind of error, one of those of this package; none for a code without a meaning of
// its own, such as Internal.
type ItemError struct {
	// Item is what it is about, such as entry/<id>.
	Item    string
	Code    codes.Code
	Message string
}

// Error returns one line.
func (e *ItemError) Error() string {
	return fmt.Sprintf("%s: %s (%s)", e.Item, e.Message, e.Code)
}

// Unwrap returns the kind.
func (e *ItemError) Unwrap() error { return kindOf(e.Code) }

// itemError returns nil for a status of OK. Every item of an answer has a status.
func itemError(item string, st *types.Status) error {
	switch {
	case st == nil:
		return fmt.Errorf("%s: the answer says nothing of it: %w", item, spire.ErrReply)
	case st.GetCode() == int32(codes.OK):
		return nil
	}
	code := codes.Unknown
	if n := st.GetCode(); n > 0 && n <= int32(codes.Unauthenticated) {
		code = codes.Code(n) //nolint:gosec // in range
	}
	return &ItemError{Item: item, Code: code, Message: clean(st.GetMessage())}
}

// isInternal tells the code that the server also gives for what will never succeed.
func isInternal(err error) bool {
	var item *ItemError
	return errors.As(err, &item) && item.Code == codes.Internal
}

// batches calls send with the items in pieces that one request holds, until one fails.
func batches[M proto.Message](items []M, send func([]M) error) error {
	for len(items) > 0 {
		n, size := 0, 0
		for n < len(items) && n < maxBatchItems {
			if size += proto.Size(items[n]); n > 0 && size > maxBatchBytes {
				break
			}
			n++
		}
		if err := send(items[:n]); err != nil {
			return err
		}
		items = items[n:]
	}
	return nil
}

// count checks that a batch was answered item by item.
func count(doing string, sent, answered int) error {
	if sent != answered {
		return fmt.Errorf("%s: %d results for %d items: %w", doing, answered, sent, spire.ErrReply)
	}
	return nil
}

// pages calls fetch with the token of each page, until there is no further. Fetch
// returns the next token and how many items the page had.
func pages(doing string, fetch func(token string) (next string, n int, err error)) error {
	token, listed := "", 0
	for {
		next, n, err := fetch(token)
		if err != nil {
			return err
		}
		listed += n
		switch {
		case next == "":
			return nil
		case next == token:
			return fmt.Errorf("%s: the server sends the same page again: %w", doing, spire.ErrReply)
		case listed > maxListed:
			return fmt.Errorf("%s: the list does not end after %d items: %w", doing, listed, spire.ErrReply)
		}
		token = next
	}
}
