module github.com/Keyfactor/ejbca-go-client-sdk

go 1.26.6
