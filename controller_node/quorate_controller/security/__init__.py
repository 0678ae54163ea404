"""Who may do what: the rules of Kafka's StandardAuthorizer, over the ACLs of a metadata image (KIP-801).

`authorizer` decides, `acl_index` finds the ACLs of a resource, `hosts` compares addresses, and `access` is what a
request's handlers ask. All of it is data in, decision out.
"""
