{{ config(materialized='table') }}

-- The pairs that were shown; add pairs that a new ranker could show as well.
select
    pairs.query_id,
    pairs.doc_id,
    products.price,
    products.rating
from (select distinct query_id, doc_id from {{ ref('untilt_clicks') }}) as pairs
inner join {{ source('shop', 'products') }} as products
    on products.sku = pairs.doc_id
